package kubernetes

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests is what kubectl apply -k sends, in the types of the API.
type manifests struct {
	configs  map[string]*corev1.ConfigMap
	secrets  map[string]*corev1.Secret
	services map[string]*corev1.Service
	members  *appsv1.StatefulSet
	app      *appsv1.Deployment
	budget   *policyv1.PodDisruptionBudget
	network  *networkingv1.NetworkPolicy
	keys     string // the folder that make-keys.sh has filled
}

// render makes keys and renders the folder. A field that a type does not have is an error, and so
// is an object of another kind.
func render(t *testing.T) *manifests {
	t.Helper()
	tree := t.TempDir()
	dir := filepath.Join(tree, "examples", "kubernetes")
	for to, from := range map[string]string{
		dir: ".", filepath.Join(tree, "deploy", "kustomize"): "../../deploy/kustomize",
	} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	m := newManifests()
	m.keys = filepath.Join(dir, "keys")
	// Members dial each other by name, here by that of this machine. As in a cluster, the
	// certificate is for no address.
	if out, err := exec.Command(
		"sh", "make-keys.sh", m.keys, "localhost",
	).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects.Resources() {
		text, err := o.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if problems := validation.IsDNS1123Subdomain(o.GetName()); len(problems) > 0 ||
			o.GetNamespace() != "penstock" {
			t.Errorf("%s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), problems)
		}
		m.add(t, text)
	}
	if m.members == nil || m.app == nil || m.budget == nil || m.network == nil {
		t.Fatal("a kind of object is missing")
	}
	return m
}

func newManifests() *manifests {
	return &manifests{
		configs: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
		services: map[string]*corev1.Service{},
	}
}

// add reads an object.
func (m *manifests) add(t *testing.T, text []byte) {
	t.Helper()
	var o metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var into any
	switch kind := o.APIVersion + " " + o.Kind; kind {
	case "v1 ConfigMap":
		into = put(m.configs, o.Name)
	case "v1 Secret":
		into = put(m.secrets, o.Name)
	case "v1 Service":
		into = put(m.services, o.Name)
	case "apps/v1 StatefulSet":
		m.members = new(appsv1.StatefulSet)
		into = m.members
	case "apps/v1 Deployment":
		m.app = new(appsv1.Deployment)
		into = m.app
	case "policy/v1 PodDisruptionBudget":
		m.budget = new(policyv1.PodDisruptionBudget)
		into = m.budget
	case "networking.k8s.io/v1 NetworkPolicy":
		m.network = new(networkingv1.NetworkPolicy)
		into = m.network
	default:
		t.Fatalf("%s is not expected here", kind)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Errorf("%s %s: %v", o.Kind, o.Name, err)
	}
}

func put[T any](into map[string]*T, name string) *T {
	into[name] = new(T)
	return into[name]
}

// Promise: what refers to something refers to what is there.
func TestManifestsFitTogether(t *testing.T) {
	m := render(t)
	members, agents := m.members.Spec.Template, m.app.Spec.Template
	for what, s := range map[string]struct {
		selector *metav1.LabelSelector
		labels   map[string]string
		want     bool
	}{
		"the members' own": {m.members.Spec.Selector, members.Labels, true},
		"the service": {metav1.SetAsLabelSelector(
			m.services["penstock"].Spec.Selector), members.Labels, true},
		"the service, of agents": {metav1.SetAsLabelSelector(
			m.services["penstock"].Spec.Selector), agents.Labels, false},
		"the budget":                  {m.budget.Spec.Selector, members.Labels, true},
		"the network policy":          {&m.network.Spec.PodSelector, members.Labels, true},
		"the network policy, of apps": {&m.network.Spec.PodSelector, agents.Labels, false},
		"whom members hear": {
			m.network.Spec.Ingress[0].From[0].PodSelector,
			agents.Labels, true,
		},
		"whom members hear: members": {
			m.network.Spec.Ingress[0].From[0].PodSelector,
			members.Labels, true,
		},
		"whom members hear: others": {
			m.network.Spec.Ingress[0].From[0].PodSelector,
			map[string]string{"app": "x"},
			false,
		},
		"the app's own": {m.app.Spec.Selector, agents.Labels, true},
		"the spread": {
			members.Spec.TopologySpreadConstraints[0].LabelSelector, members.Labels, true,
		},
	} {
		selector, err := metav1.LabelSelectorAsSelector(s.selector)
		if err != nil || selector.Empty() || selector.Matches(labels.Set(s.labels)) != s.want {
			t.Errorf("%s: the selector %v, %v, and the labels %v", what, selector, err, s.labels)
		}
	}
	if s := m.services["penstock"]; s.Spec.ClusterIP != corev1.ClusterIPNone ||
		!s.Spec.PublishNotReadyAddresses || m.members.Spec.ServiceName != s.Name {
		t.Errorf("the members' service is not headless, or not theirs: %+v", s.Spec)
	}
	if m.budget.Spec.MaxUnavailable.IntValue() != 1 || *m.members.Spec.Replicas < 3 {
		t.Errorf("%v of %d members may be away", m.budget.Spec.MaxUnavailable,
			*m.members.Spec.Replicas)
	}
	listens, open := map[string]bool{}, map[string]bool{}
	for _, p := range members.Spec.Containers[0].Ports {
		listens[fmt.Sprint(p.Protocol, p.ContainerPort)] = true
	}
	for _, p := range m.network.Spec.Ingress[0].Ports {
		open[fmt.Sprint(*p.Protocol, p.Port)] = true
	}
	if !maps.Equal(listens, open) {
		t.Errorf("members listen on %v; open are %v", listens, open)
	}
	sidecar := agents.Spec.InitContainers[0]
	if sidecar.RestartPolicy == nil ||
		*sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways ||
		sidecar.StartupProbe == nil {
		t.Errorf("the agent is not a sidecar that is waited for: %+v", sidecar)
	}
	for _, pod := range []corev1.PodSpec{members.Spec, agents.Spec} {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			m.fits(t, pod, c)
		}
	}
}

// Promise: a program's container has its token alone: no key of nodes, and no rights to change.
// Its agent has the hash of the token, and not the token.
func TestProgramsHaveTheLeast(t *testing.T) {
	m := render(t)
	pod := m.app.Spec.Template.Spec
	secrets := func(c corev1.Container) (names []string) {
		for _, v := range pod.Volumes {
			mounted := func(mount corev1.VolumeMount) bool { return mount.Name == v.Name }
			if v.Secret != nil && slices.ContainsFunc(c.VolumeMounts, mounted) {
				names = append(names, v.Secret.SecretName[:strings.LastIndex(v.Secret.SecretName,
					"-")])
			}
		}
		return names
	}
	if got := secrets(pod.Containers[0]); !slices.Equal(got, []string{"shop-token"}) {
		t.Errorf("the program has the Secrets %v", got)
	}
	agents := []string{"penstock-agent-keys", "shop-rights"}
	if got := secrets(pod.InitContainers[0]); !slices.Equal(got, agents) {
		t.Errorf("the agent has the Secrets %v", got)
	}
	rights := secretOf(t, m, "shop-rights", "clients.yaml")
	token := secretOf(t, m, "shop-token", "token")
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	if !strings.Contains(rights, hash) || strings.Contains(rights, token) {
		t.Errorf("the rights %q are not those of the hash %s alone", rights, hash)
	}
}

// fits checks what a container refers to, and that it has no more rights than it needs.
func (m *manifests) fits(t *testing.T, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	for _, mount := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == mount.Name
		})
		if i < 0 {
			t.Errorf("%s mounts %s, which is not a volume", c.Name, mount.Name)
			continue
		}
		v := pod.Volumes[i]
		if v.ConfigMap != nil && m.configs[v.ConfigMap.Name] == nil || v.Secret != nil &&
			m.secrets[v.Secret.SecretName] == nil {
			t.Errorf("%s mounts %s, and nobody makes it", c.Name, mount.Name)
		}
		if v.Secret != nil && *v.Secret.DefaultMode != 0o400 {
			t.Errorf("%s: the keys have the mode %o", c.Name, *v.Secret.DefaultMode)
		}
	}
	for _, from := range c.EnvFrom {
		if m.configs[from.ConfigMapRef.Name] == nil {
			t.Errorf("%s has variables of %s, and nobody makes it", c.Name, from.ConfigMapRef.Name)
		}
	}
	s := c.SecurityContext
	if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		!*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("%s may do more than it needs: %+v", c.Name, s)
	}
}
