package rpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// Promise: a request is under the plan that it names, by every door that names a limit, by rules,
// and by whatever node; a change of plan keeps the counter, and an unknown plan is an error that
// names those that there are.
func TestPlansAtEveryDoor(t *testing.T) {
	stations := newStations(t, 2)
	l, err := limiter.New(
		limiter.Spec{
			Name: "api", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 2,
			Per: time.Hour,
		},
		limiter.Override{Plan: "free", Limit: 3}, limiter.Override{Plan: "pro", Limit: 6},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stations {
		s.node.SetLimits(cluster.Limits{"api": l})
	}
	n := stations[0].node
	rpctest.SetRules(t, n, rules.Rule{Name: "all", Apply: []rules.Apply{
		{Limit: "api", Key: "{header:x-user}", Plan: "{header:x-plan}"},
	}})
	h := web.New(web.Config{Node: n})
	client := stations[0].client
	doors := map[string]func(plan, key string) (allowed bool, override, text string){
		"query": func(plan, key string) (bool, string, string) {
			return answered(t, textOf(rpctest.Page(h, "GET",
				"/v1/check?limit=api&key="+key+"&plan="+plan, "")))
		},
		"body": func(plan, key string) (bool, string, string) {
			return answered(t, textOf(rpctest.Page(h, "POST", "/v1/check",
				fmt.Sprintf(`{"limit":"api","key":%q,"plan":%q}`, key, plan))))
		},
		"auth": func(plan, key string) (bool, string, string) {
			return answered(t, textOf(rpctest.Page(h, "GET",
				"/v1/auth?limit=api&key="+key+"&plan="+plan, "")))
		},
		"gRPC": func(plan, key string) (bool, string, string) {
			it := rpctest.Item("api", key, 1)
			it.Plan = plan
			out, err := client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{
				Items: []*penstockv1.Item{it},
			})
			if err != nil {
				return false, "", err.Error()
			}
			return out.Decisions[0].Allowed, out.Decisions[0].Override, ""
		},
		"rules": func(plan, key string) (bool, string, string) {
			out, err := client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{
				Attributes: map[string]string{"header:x-user": key, "header:x-plan": plan},
			})
			if err != nil {
				return false, "", err.Error()
			}
			return out.Decisions[0].Allowed, out.Decisions[0].Override, ""
		},
	}
	i := 0
	for name, ask := range doors {
		for _, owner := range stations {
			i++
			key := rpctest.OwnKey(owner.node, i)
			for k, row := range []struct {
				plan, override string
				allowed        bool
			}{
				{"free", "plan free", true},
				{"free", "plan free", true},
				{"", "", false},
				{"free", "plan free", true},
				{"free", "plan free", false},
				{"pro", "plan pro", true},
				{"pro", "plan pro", true},
				{"pro", "plan pro", true},
				{"pro", "plan pro", false},
				{"free", "plan free", false},
			} {
				allowed, override, text := ask(row.plan, key)
				if allowed != row.allowed || override != row.override {
					t.Errorf("%s, %d: %v by %q: %s", name, k, allowed, override, text)
				}
			}
			if _, _, text := ask("gold", key); !strings.Contains(text, "plan") ||
				!strings.Contains(text, "there is: free, pro") {
				t.Errorf("%s, an unknown plan: %s", name, text)
			}
		}
	}
	inline := `{"key":"a","plan":"pro","inline":{"algorithm":"gcra","limit":4,"per":"1h"}}`
	if _, text := rpctest.Page(h, "POST", "/v1/check", inline); !strings.Contains(text,
		"has no plans; leave it out") {
		t.Error(text)
	}
	if _, text := rpctest.Page(h, "GET", "/v1/auth?plan=pro", ""); !strings.Contains(text,
		"plan: is given without a limit") {
		t.Error(text)
	}
}

// answered is what an answer says, an error with its text.
func answered(t *testing.T, text string) (allowed bool, override, _ string) {
	t.Helper()
	var d web.DecisionJSON
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err, text)
	}
	return d.Allowed, d.Override, text
}

// Promise: PUT takes plans, and GET of a definition shows them.
func TestPutPlans(t *testing.T) {
	n := rpctest.Alone(t)
	h := web.New(web.Config{Node: n, Admin: true})
	answer, body := rpctest.Page(h, "PUT", "/v1/limits", `{"name":"w","algorithm":"gcra","limit":1,
		"per":"1h","overrides":[{"plan":"pro","limit":5}],"candidate":{"limit":2}}`)
	l := n.Limits()["w"]
	if answer.StatusCode != 200 || l == nil {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	for _, of := range []*limiter.Limit{l, l.Candidate()} {
		if under, err := of.Under("pro", "k"); err != nil || under.Limit != 5 {
			t.Errorf("%+v, %v", under, err)
		}
	}
}

// textOf is the text of an answer.
func textOf(_ *http.Response, text string) string { return text }
