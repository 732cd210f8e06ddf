// Fifty shows the page of a node as if its cluster had fifty nodes. Every answer is the node's own,
// but those that list nodes: there the nodes that it knows stand several times, under further
// names, and share the partitions. Two of them have failed.
//
//	fifty -node 127.0.0.1:7949 -listen 127.0.0.1:8000
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// shown is how many nodes there seem to be, failed how many of them have failed.
const (
	shown  = 50
	failed = 2
)

func main() {
	node := flag.String("node", "127.0.0.1:7949", "HTTP door of the node")
	listen := flag.String("listen", "127.0.0.1:8000", "where the page is shown")
	flag.Parse()
	log.Fatal(http.ListenAndServe(*listen, multiplied(*node)))
}

// multiplied is the node at an address, with more nodes around it.
func multiplied(node string) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: node})
	direct := proxy.Director
	proxy.Director = func(r *http.Request) {
		direct(r)
		r.Host = node
		r.Header.Del("Accept-Encoding")
	}
	proxy.FlushInterval = -1 // events come as they are
	proxy.ModifyResponse = func(r *http.Response) error {
		switch r.Request.URL.Path {
		case "/v1/cluster/watch":
			r.Body = rewritten(r.Body)
		case "/v1/cluster/ring":
			text, err := io.ReadAll(r.Body)
			if err == nil {
				text, err = moreOwners(text)
			}
			r.Body = io.NopCloser(bytes.NewReader(text))
			r.ContentLength = int64(len(text))
			r.Header.Set("Content-Length", fmt.Sprint(len(text)))
			return err
		}
		return nil
	}
	return proxy
}

// rewritten is a stream of events, of which those that tell the state tell more nodes.
func rewritten(from io.ReadCloser) io.ReadCloser {
	out, to := io.Pipe()
	go func() {
		defer from.Close()
		lines, state := bufio.NewReader(from), false
		for {
			line, err := lines.ReadString('\n')
			if data, found := strings.CutPrefix(line, "data: "); found && state {
				more, bad := moreNodes([]byte(data))
				if bad != nil {
					to.CloseWithError(bad)
					return
				}
				line = "data: " + string(more) + "\n"
			}
			if strings.HasPrefix(line, "event: ") {
				state = strings.TrimSpace(line) == "event: state"
			}
			if _, gone := io.WriteString(to, line); err != nil || gone != nil {
				to.CloseWithError(err)
				return
			}
		}
	}()
	return out
}

// moreNodes adds nodes to what a node tells of the state of all.
func moreNodes(state []byte) ([]byte, error) {
	var s map[string]any
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, err
	}
	nodes, _ := s["nodes"].([]any)
	if len(nodes) == 0 {
		return state, nil
	}
	known := len(nodes)
	for i := known; i < shown; i++ {
		first, _ := nodes[i%known].(map[string]any)
		node := map[string]any{}
		for name, value := range first {
			node[name] = value
		}
		node["name"], node["boot"], node["self"] = nameOf(i), fmt.Sprintf("%016x", i+1), false
		node["http_address"] = fmt.Sprintf("10.0.3.%d:7949", i)
		if i >= shown-failed {
			node["state"], node["failed_ago_ms"], node["answered"] = "failed", 12_000, false
		}
		nodes = append(nodes, node)
	}
	s["nodes"] = nodes
	return json.Marshal(s)
}

// nameOf is as long as names of pods are.
func nameOf(i int) string { return fmt.Sprintf("penstock-eu-west-%02d", i) }

// moreOwners deals the partitions of a ring out to more nodes.
func moreOwners(ring []byte) ([]byte, error) {
	var r map[string]any
	if err := json.Unmarshal(ring, &r); err != nil {
		return nil, err
	}
	names, _ := r["names"].([]any)
	for i := len(names); i < shown-failed; i++ {
		names = append(names, nameOf(i))
	}
	r["names"] = names
	for shift, of := range []string{"owners", "heirs"} {
		places, _ := r[of].([]any)
		for p := range places {
			places[p] = (p*7 + shift) % len(names)
		}
	}
	return json.Marshal(r)
}
