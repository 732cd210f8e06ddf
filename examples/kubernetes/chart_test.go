package kubernetes

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// renderChart renders the chart of deploy/helm with helm's own engine, as `helm template` does it.
func renderChart(t *testing.T, values string) (*manifests, error) {
	t.Helper()
	chart, err := loader.Load("../../deploy/helm/penstock")
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	own, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, own, chartutil.ReleaseOptions{
		Name: "mine", Namespace: "penstock", Revision: 1, IsInstall: true,
	}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	m := newManifests()
	for _, text := range files {
		for object := range strings.SplitSeq(text, "\n---\n") {
			if strings.TrimSpace(object) != "" {
				m.add(t, []byte(object))
			}
		}
	}
	return m, nil
}

// Promise: with its default values the chart is the base of kustomize, object by object, so what
// is tested of one holds for the other. The chart's labels alone are its own.
func TestChartIsTheBase(t *testing.T) {
	base := render(t)
	chart, err := renderChart(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if chart.members == nil || chart.budget == nil || chart.network == nil {
		t.Fatal("a kind of object is missing")
	}
	meta := func(o *metav1.ObjectMeta) {
		if len(o.Labels) > 0 && o.Labels["app.kubernetes.io/name"] != "penstock" {
			t.Errorf("%s has the labels %v", o.Name, o.Labels)
		}
		o.Labels, o.Namespace = nil, ""
	}
	for _, m := range []*manifests{base, chart} {
		for _, o := range []*metav1.ObjectMeta{
			&m.members.ObjectMeta, &m.budget.ObjectMeta, &m.network.ObjectMeta,
			&m.services["penstock"].ObjectMeta, &m.configs["penstock"].ObjectMeta,
		} {
			meta(o)
		}
		m.members.Spec.Template.Spec.Containers[0].Image = "penstock"
		for i, v := range m.members.Spec.Template.Spec.Volumes {
			if v.Secret != nil { // kustomize adds a hash
				s := m.members.Spec.Template.Spec.Volumes[i].Secret
				s.SecretName, _, _ = strings.Cut(s.SecretName+"-", "penstock-keys-")
			}
		}
	}
	for what, pair := range map[string][2]any{
		"StatefulSet":         {base.members, chart.members},
		"PodDisruptionBudget": {base.budget, chart.budget},
		"NetworkPolicy":       {base.network, chart.network},
		"Service":             {base.services["penstock"], chart.services["penstock"]},
		"ConfigMap":           {base.configs["penstock"], chart.configs["penstock"]},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			a, _ := yaml.Marshal(pair[0])
			b, _ := yaml.Marshal(pair[1])
			t.Errorf("%s: kustomize has\n%s\nthe chart has\n%s", what, a, b)
		}
	}
}

// Promise: each value reaches the object that it is about, and rights stay the smallest.
func TestChartValues(t *testing.T) {
	m, err := renderChart(t, `
replicas: 5
image: {repository: registry.example/penstock, tag: v1.2.3, pullPolicy: IfNotPresent}
memory: 1GiB
copies: 2
limits: "limits: []"
keysSecret: others
extraArgs: [--zone=eu-1, --log-level=debug]
persistence: {enabled: true, size: 5Gi, storageClass: fast}
networkPolicy: {enabled: false}
resources: {limits: {memory: 2Gi}}
nodeSelector: {disk: ssd}
tolerations: [{key: limits, operator: Exists}]
podAnnotations: {example.org/a: b}
`)
	if err != nil {
		t.Fatal(err)
	}
	spec := m.members.Spec
	pod := spec.Template.Spec
	c := pod.Containers[0]
	for _, arg := range []string{
		"--memory=1GiB", "--copies=2", "--expect=5", "--data-dir=/var/lib/penstock",
		"--zone=eu-1", "--log-level=debug",
	} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("%s is not among %v", arg, c.Args)
		}
	}
	claims := spec.VolumeClaimTemplates
	for what, is := range map[string]bool{
		"replicas": *spec.Replicas == 5,
		"image": c.Image == "registry.example/penstock:v1.2.3" &&
			c.ImagePullPolicy == corev1.PullIfNotPresent,
		"limits":       m.configs["penstock-limits"].Data["limits.yaml"] == "limits: []",
		"keysSecret":   pod.Volumes[1].Secret.SecretName == "others",
		"policy":       m.network == nil,
		"resources":    c.Resources.Limits.Memory().String() == "2Gi",
		"nodeSelector": pod.NodeSelector["disk"] == "ssd",
		"tolerations":  len(pod.Tolerations) == 1 && pod.Tolerations[0].Key == "limits",
		"annotations":  spec.Template.Annotations["example.org/a"] == "b",
		"claim": len(claims) == 1 && *claims[0].Spec.StorageClassName == "fast" &&
			claims[0].Spec.Resources.Requests.Storage().String() == "5Gi" &&
			slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool {
				return v.Name == claims[0].Name && v.MountPath == "/var/lib/penstock"
			}),
	} {
		if !is {
			t.Errorf("%s: the value has not arrived: %+v", what, spec)
		}
	}
	// The claims and the Secret are made elsewhere.
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: claims[0].Name})
	m.secrets["others"] = new(corev1.Secret)
	m.fits(t, pod, c)
}

// Promise: values that cannot work are refused before anything is installed.
func TestChartRefusesValues(t *testing.T) {
	for _, values := range []string{
		"replicas: 0", "replica: 3", "memory: lots", "copies: 3", "limits: ''",
		"image: {repository: x, tag: ''}", "keysSecret: ''", "extraArgs: [serve]",
		"persistence: {enable: true}",
	} {
		if _, err := renderChart(t, values); err == nil {
			t.Errorf("%s: accepted", values)
		}
	}
}

// Promise: an image may be pinned by its digest, which overrides the tag.
func TestChartPinsTheImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	m, err := renderChart(t, "image: {repository: registry.example/penstock, digest: "+digest+"}")
	if err != nil {
		t.Fatal(err)
	}
	got := m.members.Spec.Template.Spec.Containers[0].Image
	if want := "registry.example/penstock@" + digest; got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
	if _, err := renderChart(t, "image: {digest: sha256:0a}"); err == nil {
		t.Error("a digest of two digits is accepted")
	}
}

// Promise: no manifest names an image by the tag latest, which means something else tomorrow.
func TestNoManifestNamesLatest(t *testing.T) {
	files := 0
	for _, dir := range []string{"../../deploy", "..", "../../docker-compose.yml"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") &&
				!strings.HasSuffix(path, ".yml") && !strings.HasPrefix(d.Name(), "Dockerfile") {
				return err
			}
			b, err := os.ReadFile(path)
			if latest.Match(b) {
				t.Errorf("%s names an image by latest", path)
			}
			files++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 10 {
		t.Errorf("only %d manifests were read", files)
	}
}

var latest = regexp.MustCompile(`(?im)^\s*-?[^#\n]*(image:|from|tag:).*\blatest\b`)
