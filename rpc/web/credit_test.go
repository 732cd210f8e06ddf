package web

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/rpctest"
)

// Promise: a credit gives back what it says, never above full, is recorded with the state before
// and after, and needs the right to write.
func TestCredit(t *testing.T) {
	n := rpctest.Alone(t, rpctest.Specs...)
	var log strings.Builder
	a := admin.New(admin.Config{Node: n, Audit: audit.New(&log, nil)})
	h := New(Config{Node: n})
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=k&cost=4", "")
	credit := func(limit, key string, units int64) (*penstockv1.CreditResponse, error) {
		return a.Credit(
			t.Context(),
			&penstockv1.CreditRequest{Limit: limit, Key: []byte(key), Units: units},
		)
	}
	for _, step := range []struct{ units, left int64 }{{3, 4}, {100, 5}} {
		out, err := credit("demo", "k", step.units)
		if err != nil || out.Decision.Remaining != step.left {
			t.Errorf("a credit of %d: %v, %v; want %d left", step.units, out, err, step.left)
		}
	}
	for _, want := range []string{
		`"action":"credit","target":"demo"`, `"before":{"remaining":1},"after":{"remaining":4}`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the audit log lacks %s:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), `"k"`) {
		t.Errorf("the audit log has the key itself:\n%s", log.String())
	}
	for _, row := range []struct {
		limit, key string
		units      int64
		code       codes.Code
		want       string
	}{
		{"demo", "k", 0, codes.InvalidArgument, "units: is 0; 1 to"},
		{"demo", "k", -3, codes.InvalidArgument, "units: is -3"},
		{"demo", "", 1, codes.InvalidArgument, "key: is empty"},
		{"none", "k", 1, codes.NotFound, `no limit is named "none"`},
	} {
		_, err := credit(row.limit, row.key, row.units)
		if status.Code(err) != row.code || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row, err)
		}
	}
	if right, listed := admin.MethodRights[penstockv1.Admin_Credit_FullMethodName]; listed {
		t.Errorf("a credit needs %v, and not the right to write (%v)", right, access.Write)
	}
}
