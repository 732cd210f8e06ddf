package main

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/rpc/audit"
	"penstock/rpc/rpctest"
)

// caller is one that asks at all doors: by a token, or by its certificate. The certificates of all
// are of the authority that the doors trust; nobody has one with a name of guest.
type caller struct {
	name, role  string // role is a client; empty: it is unknown
	token       string
	certificate string
}

func rightsCallers() (list []caller) {
	for _, role := range strings.Fields("shop till free boss view root prom") {
		list = append(list, caller{role, role, role + "-0123456789abcdef", "guest"})
	}
	return append(list,
		caller{"nobody", "", "", "guest"},
		caller{"an unknown token", "", "none-0123456789abcdef", "guest"},
		caller{"a removed token", "", "gone-0123456789abcdef", "guest"},
		caller{"shop by its certificate", "shop", "", "shop.example"},
		caller{"view by its certificate", "view", "", "view"},
		caller{"shop.example as the subject of a certificate", "", "", "subject"},
	)
}

// Promise: at every door a client gets what its entry says (docs/security.md), whether it is known
// by a token or by its certificate: it passes, or it hears the code for a missing right or for an
// unknown client, and then nothing is charged, changed or recorded. Each method, page and command
// stands in rightsRows.
func TestRightsAtEveryDoor(t *testing.T) {
	for _, admin := range []string{"", "127.0.0.1:0"} {
		t.Run("admin "+admin, func(t *testing.T) {
			d := openRights(t, admin)
			seen := map[string]bool{}
			for line := range strings.Lines(rightsRows) {
				row, may, written := strings.Cut(strings.TrimSpace(line), " = ")
				if !written {
					continue
				}
				door, request, _ := strings.Cut(rightsWords.Replace(row), " ")
				seen[strings.TrimSuffix(nameOfRequest(door, request), "/")] = true
				for _, c := range rightsCallers() {
					d.demand(t, c, door, request, strings.Fields(may))
				}
			}
			root := caller{"root", "root", "root-0123456789abcdef", "guest"}
			d.demand(t, root, "http", "GET /no/such/page", []string{"none"})
			if admin != "" {
				d.demand(t, root, "http", "GET /v1/top", []string{"none"})
				d.demand(t, root, "grpc", "penstock.v1.Admin/Members {}", []string{"none"})
			}
			put := func(e audit.Entry) bool {
				return e.Action == "put limit" && strings.HasPrefix(e.Who, "root ")
			}
			if last := d.files.audit.Last(1000); !slices.ContainsFunc(last, put) {
				t.Errorf("no limit that root has put is in the audit log: %v", last)
			}
			for _, name := range d.everything(t) {
				if !seen[name] {
					t.Errorf("%s is not in rightsRows", name)
				}
			}
			d.refuseOutsiders(t)
		})
	}
}

// rightsDoors are the doors of a node.
type rightsDoors struct {
	*running
	roots     *x509.CertPool
	issued    map[string]tls.Certificate // by the names of certificates
	transport map[string]*http.Transport
	calls     map[string]*rpctest.Calls
	words     *strings.Replacer // with the ids of holds
}

func openRights(t *testing.T, admin string) *rightsDoors {
	ca, strangers := newAuthority(t, "clients"), newAuthority(t, "strangers")
	d := &rightsDoors{
		roots: x509.NewCertPool(), issued: map[string]tls.Certificate{},
		transport: map[string]*http.Transport{}, calls: map[string]*rpctest.Calls{},
	}
	d.roots.AddCert(ca.cert)
	view, _ := url.Parse("spiffe://example/view")
	d.issued["guest"] = ca.issueTo(&x509.Certificate{DNSNames: []string{"guest"}})
	d.issued["shop.example"] = ca.issueTo(&x509.Certificate{DNSNames: []string{"shop.example"}})
	d.issued["view"] = ca.issueTo(&x509.Certificate{URIs: []*url.URL{view}})
	d.issued["subject"] = ca.issueTo(&x509.Certificate{
		Subject: pkix.Name{CommonName: "shop.example"},
	})
	d.issued["stranger"] = strangers.issueTo(&x509.Certificate{DNSNames: []string{"shop.example"}})
	clients := write(t, rightsClients+goneClient)
	cert, key := ca.issue("door")
	shelf := t.TempDir()
	putFile(t, filepath.Join(shelf, "shelf.yaml"), "domain: shelf\ndescriptors:\n"+
		"  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000}}\n")
	d.running, _ = startNode(t, func(s *settings) {
		s.HTTP, s.Redis, s.Admin = "127.0.0.1:0", "127.0.0.1:0", admin
		s.AuthTokenFile, s.EnvoyConfig = clients, shelf
		s.TLSCert, s.TLSKey, s.TLSCA = cert, key, ca.file
		s.Limits = write(t, "limits: [{name: five, algorithm: fixed_window, limit: 1000000, "+
			"per: 24h}]\nrules: [{match: {path: /shop}, apply: [{limit: five, key: shop/1}]}]\n")
	})
	d.waitReady(t)
	putFile(t, clients, rightsClients)
	d.files.reload()
	boss := caller{"boss", "boss", "boss-0123456789abcdef", "guest"}
	hold := func(key string) string {
		_, text := d.page(t, boss, "http", "POST /v1/reserve "+
			`{"limit":"five","key":"`+key+`","ttl_ms":60000}`)
		var out struct{ ID string }
		if err := json.Unmarshal([]byte(text), &out); err != nil || out.ID == "" {
			t.Fatalf("no hold: %s", text)
		}
		return out.ID
	}
	d.words = strings.NewReplacer("<hold>", hold("shop/h"), "<held>", hold("bank/h"))
	return d
}

// refuseOutsiders demands that no door talks to a client without a certificate, or with one of
// another authority.
func (d *rightsDoors) refuseOutsiders(t *testing.T) {
	t.Helper()
	for _, c := range []caller{{name: "no certificate"}, {certificate: "stranger"}} {
		for _, ask := range []string{
			"http GET /healthz", "admin GET /healthz", "grpc grpc.health.v1.Health/Check {}",
			"redis PING",
		} {
			door, request, _ := strings.Cut(ask, " ")
			if got := d.ask(t, c, door, request); got != "closed" {
				t.Errorf("%s%s, %s: %s; want no connection", c.name, c.certificate, ask, got)
			}
		}
	}
}

// issueTo makes a certificate of a client.
func (a *authority) issueTo(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = a.cert.NotBefore, a.cert.NotAfter
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// demand asks as a caller, and compares what comes of it with what may says.
func (d *rightsDoors) demand(t *testing.T, c caller, door, request string, may []string) {
	t.Helper()
	want := "passed"
	switch {
	case slices.Contains(may, "none"):
		want = "absent"
	case slices.Contains(may, "all") || c.role != "" && slices.Contains(may, "known") ||
		c.role != "" && slices.Contains(may, c.role):
	case c.role == "":
		want = "unknown"
	default:
		want = "missing"
	}
	before, counted := d.marks(), d.unauthorized(t)
	got := d.ask(t, c, door, d.words.Replace(request))
	if got != want {
		t.Errorf("%s, %s %.120s: %s; want %s", c.name, door, request, got, want)
	}
	if after := d.marks(); want != "passed" && after != before {
		t.Errorf("%s, %s %.120s: was refused, and left %v, then %v", c.name, door, request, before,
			after)
	}
	expected := "" // the series that is to grow
	switch {
	case want == "unknown", door == "redis" && c.role == "" && c.token != "": // or its AUTH is
		expected = d.countedAs(door, request) + " unknown"
	case want == "missing":
		expected = d.countedAs(door, request) + " forbidden"
	}
	for series, n := range d.unauthorized(t) {
		if grew := n > counted[series]; grew != (series == expected) {
			t.Errorf("%s, %s %.120s: penstock_unauthorized_total of %q grew: %v; want %q to",
				c.name, door, request, series, grew, expected)
		}
	}
}

// unauthorized are the requests that were counted as refused, by door and reason.
func (d *rightsDoors) unauthorized(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := d.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "penstock_unauthorized_total" {
			continue
		}
		for _, m := range f.Metric {
			all[m.Label[0].GetValue()+" "+m.Label[1].GetValue()] = m.Counter.GetValue()
		}
	}
	if len(all) < 10 {
		t.Fatalf("%v are counted; want all doors", all)
	}
	return all
}

// countedAs is the door as which a request is counted: the services of others have their own.
func (d *rightsDoors) countedAs(door, request string) string {
	switch {
	case strings.Contains(request, "/json "), strings.HasPrefix(request, "envoy."):
		return "envoy"
	case strings.HasPrefix(request, "pb.gubernator."), strings.Contains(request, "GetRateLimits"),
		strings.Contains(request, "/v1/HealthCheck"), strings.Contains(request, "/v1/LiveCheck"):
		return "gubernator"
	case d.doors.address("--admin") != "" && (door == "admin" || door == "calls"):
		return "admin"
	}
	return map[string]string{"admin": "http", "calls": "grpc"}[door] + map[string]string{
		"http": "http", "grpc": "grpc", "redis": "redis",
	}[door]
}

// marks are what requests leave: charges, limits, and entries of the audit log. Holds that run out
// meanwhile are not of the request's doing.
func (d *rightsDoors) marks() [3]uint64 {
	stats := d.node.Stats()
	for {
		ranOut := stats.RanOut.Load()
		changes := stats.Changes() - ranOut
		if stats.RanOut.Load() == ranOut {
			return [3]uint64{changes, d.node.LimitsHash(), uint64(len(d.files.audit.Last(1000)))}
		}
	}
}

// ask is what comes of a request: passed, missing (a right), unknown (the client), absent (what
// was asked for), closed (the connection), or something else.
func (d *rightsDoors) ask(t *testing.T, c caller, door, request string) string {
	t.Helper()
	switch door {
	case "redis":
		return d.askRedis(t, c, request)
	case "grpc", "calls":
		return d.askGRPC(t, c, door, request)
	}
	code, text := d.page(t, c, door, request)
	switch {
	case code == 0:
		return "closed"
	case code == http.StatusUnauthorized:
		return "unknown"
	case code == http.StatusForbidden && (strings.Contains(text, `"missing_right":"`) ||
		strings.Contains(text, "lacks the right")):
		return "missing"
	case code == http.StatusNotFound && strings.Contains(text, "there is nothing at"),
		code == http.StatusMethodNotAllowed:
		return "absent"
	case code >= 500 || code == http.StatusForbidden:
		return fmt.Sprint(code, text)
	}
	return "passed"
}

// at is the address of a door. Where --admin is not given, its pages and calls are at others.
func (d *rightsDoors) at(door string) string {
	usual := map[string]string{"admin": "http", "calls": "grpc"}[door]
	if usual == "" {
		return d.doors.address("--" + door)
	}
	if at := d.doors.address("--admin"); at != "" {
		return at
	}
	return d.doors.address("--" + usual)
}

func (d *rightsDoors) tls(c caller) *tls.Config {
	shown := &tls.Config{RootCAs: d.roots, ServerName: "localhost"}
	if pair, ok := d.issued[c.certificate]; ok {
		shown.Certificates = []tls.Certificate{pair}
	}
	return shown
}

// page asks by HTTP; code 0: there was no connection.
func (d *rightsDoors) page(t *testing.T, c caller, door, request string) (code int, text string) {
	t.Helper()
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	r, err := http.NewRequest(method, "https://"+d.at(door)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if d.transport[c.name] == nil {
		d.transport[c.name] = &http.Transport{TLSClientConfig: d.tls(c)}
		t.Cleanup(d.transport[c.name].CloseIdleConnections)
	}
	answer, err := d.transport[c.name].RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	if strings.HasPrefix(path, "/v1/cluster/watch") && answer.StatusCode == http.StatusOK {
		return http.StatusOK, ""
	}
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}
