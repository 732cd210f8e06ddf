package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
)

// contractMetrics are the metrics that programs outside rely on, with their types and labels.
var contractMetrics = []struct {
	name, kind string
	labels     []string
}{
	{"penstock_checks_total", "counter", []string{"limit", "decision", "source"}},
	{"penstock_peeks_total", "counter", nil},
	{"penstock_check_duration_seconds", "histogram", []string{"door"}},
	{"penstock_peer_request_duration_seconds", "histogram", nil},
	{"penstock_degraded_total", "counter", []string{"limit", "reason"}},
	{"penstock_config_info", "gauge", []string{"hash"}},
	{"penstock_config_last_reload_successful", "gauge", nil},
	{"penstock_config_last_reload_success_timestamp_seconds", "gauge", nil},
	{"penstock_members", "gauge", []string{"state"}},
	{"penstock_epoch", "gauge", nil},
	{"penstock_partitions", "gauge", []string{"state"}},
	{"penstock_unreplicated_partitions", "gauge", nil},
	{"penstock_underreplicated_partitions", "gauge", nil},
	{"penstock_replication_lag_seconds", "gauge", nil},
	{"penstock_handovers_total", "counter", []string{"result"}},
	{"penstock_failovers_total", "counter", []string{"cause"}},
	{"penstock_holds", "gauge", []string{"kind"}},
	{"penstock_table_bytes", "gauge", nil},
	{"penstock_table_refused_total", "counter", nil},
	{"penstock_save_errors_total", "counter", nil},
	{"penstock_gossip_refused_total", "counter", []string{"reason"}},
	{"penstock_audit_errors_total", "counter", nil},
	{"penstock_unauthorized_total", "counter", []string{"door", "reason"}},
	{"penstock_certificate_expiry_timestamp_seconds", "gauge", []string{"door"}},
	{"penstock_build_info", "gauge", []string{"version", "go"}},
}

var labelName = regexp.MustCompile(`([a-z_]+)="`)

// wrongWith says what page has not of a metric, or has otherwise.
func wrongWith(page, name, kind string, labels []string) string {
	if !strings.Contains(page, "# TYPE "+name+" "+kind+"\n") {
		return "it is not there as a " + kind
	}
	sample := name
	if kind == "histogram" {
		sample += "_count"
	}
	for line := range strings.Lines(page) {
		text, found := strings.CutPrefix(line, sample)
		if !found || text[0] != ' ' && text[0] != '{' {
			continue
		}
		var got []string
		for _, m := range labelName.FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		want := slices.Sorted(slices.Values(labels))
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Sprintf("its labels are %q; want %q", got, want)
		}
		return ""
	}
	return "it has no value"
}

const testToken = "a-token-of-the-metrics-test"

// startOperated starts a node with everything that has a metric: TLS at all doors, a token, a data
// directory, limits from a file.
func startOperated(t *testing.T) (*running, *logBook, func(path string) string) {
	t.Helper()
	a := newAuthority(t, "all")
	file, token := filepath.Join(t.TempDir(), "limits.yaml"), filepath.Join(t.TempDir(), "token")
	putFile(t, file, login(2))
	putFile(t, token, testToken+"\n")
	r, book := startNode(t, func(s *settings) {
		s.Limits, s.HTTP, s.DataDir, s.AuthTokenFile, s.Redis = file, "127.0.0.1:0", t.TempDir(),
			token, "127.0.0.1:0"
		s.TLSCert, s.TLSKey = a.issue("doors")
		s.PeerTLSCert, s.PeerTLSKey = a.issue(s.Name)
		s.PeerTLSCA = a.file
	})
	r.waitReady(t)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	return r, book, func(path string) string {
		t.Helper()
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://"+r.doors.address("--http")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		ask.Header.Set("Authorization", "Bearer "+testToken)
		answer, err := client.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
}

// Promise: every metric that outside programs rely on is on a live node, with its type and labels,
// and counts. No key, no inline limit's name and no token stands in metrics, status or log.
func TestContractMetrics(t *testing.T) {
	r, book, get := startOperated(t)
	for range 3 {
		get("/v1/check?limit=login&key=secret-person")
	}
	spec := demoLimit
	spec.Name = "secret-limit"
	inline := mustLimit(t, spec)
	out := make([]cluster.Decision, 1)
	if err := r.node.Check(&cluster.Request{Items: []cluster.Item{{
		Inline: inline,
		Key:    "secret-person", Cost: 1,
	}}}, out); err != nil {
		t.Fatal(err)
	}
	text := get("/metrics")
	for _, m := range contractMetrics {
		if problem := wrongWith(text, m.name, m.kind, m.labels); problem != "" {
			t.Errorf("%s: %s", m.name, problem)
		}
	}
	for _, want := range []string{
		`penstock_checks_total{decision="allowed",limit="login",source="owner"} 2`,
		`penstock_checks_total{decision="denied",limit="login",source="owner"} 1`,
		`penstock_checks_total{decision="allowed",limit="other",source="owner"} 1`,
		`penstock_check_duration_seconds_count{door="http"} 3`,
		`penstock_members{state="active"} 1`,
		`penstock_members{state="failed"} 0`,
		fmt.Sprintf(`penstock_build_info{go=%q,version=%q} 1`, runtime.Version(), version()),
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	for _, door := range []string{"http", "grpc", "redis", "peer"} {
		end := metric(text, fmt.Sprintf("penstock_certificate_expiry_timestamp_seconds{door=%q}",
			door))
		if left := time.Until(time.Unix(int64(end), 0)); left < 50*time.Minute ||
			left > 61*time.Minute {
			t.Errorf("the certificate of %s is said to last for %v more; it lasts for an hour",
				door, left)
		}
	}
	for where, text := range map[string]string{
		"/metrics": text, "/v1/status": get("/v1/status"),
		"the log": book.String(),
	} {
		for _, secret := range []string{"secret", testToken} {
			if strings.Contains(text, secret) {
				t.Errorf("%q stands in %s", secret, where)
			}
		}
	}
}
