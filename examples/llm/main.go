// Command llm is a proxy before a language model's API that limits what each team spends: tokens a
// minute and requests a minute together. What a request costs is known only when the model has
// answered. So the proxy reserves an estimate, passes the request on, and settles with what the
// answer says was used. While a request is under way its estimate counts as spent: no burst of long
// answers goes beyond the limit.
//
//	limits:
//	  - {name: tokens, algorithm: gcra, limit: 10000, per: 1m, max_debt: 10000}
//	  - {name: requests, algorithm: gcra, limit: 60, per: 1m}
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"penstock/rpc/client"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "host:port to serve on")
	nodes := flag.String("penstock", "127.0.0.1:7948", "gRPC doors of Penstock nodes, with "+
		"commas between them")
	model := flag.String("model", "http://127.0.0.1:9000/v1/chat/completions",
		"where the model answers")
	flag.Parse()
	limits, err := client.New(client.Config{Targets: strings.Split(*nodes, ",")})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /v1/chat/completions", &proxy{limits: limits, model: *model})
	log.Fatal(http.ListenAndServe(*listen, nil))
}

// answerTime is how long a model may take. Its deadline is the reservation's as well: if this proxy
// dies meanwhile, the estimate is charged then.
const answerTime = 2 * time.Minute

// proxy passes requests on that their team can pay.
type proxy struct {
	limits *client.Client
	model  string
}

func (p *proxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	team := r.Header.Get("X-Team")
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 1<<20))
	if err != nil || team == "" {
		http.Error(rw, "send a body of 1 MiB at most, and X-Team", http.StatusBadRequest)
		return
	}
	cost := estimate(body)
	held, err := p.limits.ReserveAll(r.Context(), []client.Request{
		{Limit: "tokens", Key: team, Cost: cost},
		{Limit: "requests", Key: team, Cost: 1},
	}, answerTime, client.HoldOptions{})
	if err != nil {
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		return
	}
	for _, h := range held {
		if !h.Allowed {
			rw.Header().Set("Retry-After", fmt.Sprint(
				int64((max(h.RetryAfter, 0)+time.Second-1)/time.Second)))
			http.Error(rw, fmt.Sprintf("%s: %d of %d are left", h.LimitName, h.Remaining, h.Limit),
				http.StatusTooManyRequests)
			return
		}
	}
	used, asked := p.pass(rw, r, body)
	if used < 0 {
		used = cost // the model does not say: what was estimated stands
	}
	// The client may be gone by now; what was used is owed all the same. Asking again does nothing
	// twice.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	if err := cmp.Or(held[0].Settle(ctx, used), held[1].Settle(ctx, asked)); err != nil {
		log.Printf("team %s used %d tokens, and that is not settled: %v", team, used, err)
	}
}

// estimate is what a request may cost at most: four bytes are about a token, and the answer has as
// many as it may have.
func estimate(body []byte) int64 {
	var request struct {
		MaxTokens int64 `json:"max_tokens"`
	}
	json.Unmarshal(body, &request) // what is not JSON the model will refuse
	if request.MaxTokens <= 0 {
		request.MaxTokens = 1000
	}
	return int64(len(body))/4 + 1 + request.MaxTokens
}

// pass sends the request on and its answer back. It returns the tokens that were used, or -1 if
// that is not known, and whether the model was asked at all, as a number.
func (p *proxy) pass(rw http.ResponseWriter, r *http.Request, body []byte) (used, asked int64) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTime-10*time.Second)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, p.model, bytes.NewReader(body))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return 0, 0
	}
	out.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(out)
	if err != nil {
		http.Error(rw, "the model does not answer", http.StatusBadGateway)
		return 0, 0
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	rw.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	rw.WriteHeader(answer.StatusCode)
	rw.Write(text)
	var said struct {
		Usage *struct {
			TotalTokens int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(text, &said) != nil || said.Usage == nil {
		return -1, 1
	}
	return said.Usage.TotalTokens, 1
}
