#!/usr/bin/env bash
# Tries the examples in Go for real: each is built by its own module and run in front of a Penstock node, the embedded one
# as two servers that have joined each other. Five requests of a user pass, the sixth does not, and says when to come
# again. Everything listens on loopback, on free ports, and works in a temporary folder that is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/../examples"
. ../.ci/report.sh
. ../.ci/processes.sh
need curl curl
need go golang

(cd .. && go build -o "$dir/penstock" ./cmd/node)
node=127.0.0.1:$(port) pages=127.0.0.1:$(port)
run penstock "$dir/penstock" serve --name node --limits limits.yaml --gossip off --peer off --redis off --grpc "$node" --http "$pages"
if until_true 30 ready "$pages"; then ok "a node is ready"; else not_ok "no node is ready after 30 s"; fi

# six NAME ADDRESS…: six requests of one user, each to the next address, and one of another.
six() {
	local name=$1 addresses=("${@:2}") i answer
	for i in 0 1 2 3 4; do
		expect 200 "$(status -H "X-User: $name" "http://${addresses[$((i % ${#addresses[@]}))]}/")" "$name: request $((i + 1)) of 5"
	done
	answer=$(curl -s -i --max-time 5 -H "X-User: $name" "http://${addresses[-1]}/" | tr -d '\r')
	for line in 'HTTP/1.1 429' 'RateLimit: "api";r=0' 'RateLimit-Policy: "api";q=5' 'Retry-After: 3' 'Content-Type: application/problem+json'; do
		if grep -qi "^$line" <<<"$answer"; then ok "$name: the sixth: $line"; else not_ok "$name: the sixth has no $line: $answer"; fi
	done
	if grep -q hello <<<"$answer"; then not_ok "$name: the sixth got the page"; else ok "$name: the sixth did not get the page"; fi
	expect 200 "$(status -H "X-User: another of $name" "http://${addresses[0]}/")" "$name: another user"
}

for name in nethttp chi gin echo; do
	(cd $name && go build -o "$dir/$name" .)
	listen=127.0.0.1:$(port)
	run $name "$dir/$name" -listen "$listen" -penstock "$node"
	until_true 10 answers "$listen" || not_ok "$name does not answer after 10 s"
	six $name "$listen"
done

(cd grpc && go build -o "$dir/grpc" .)
listen=127.0.0.1:$(port)
run grpc "$dir/grpc" -listen "$listen" -penstock "$node"
for i in 1 2 3 4 5; do
	expect OK "$("$dir/grpc" -listen "$listen" -call alice)" "grpc: call $i of 5"
done
expect "ResourceExhausted, again in 1h0m0s" "$("$dir/grpc" -listen "$listen" -call alice)" "grpc: the sixth"
expect OK "$("$dir/grpc" -listen "$listen" -call bob)" "grpc: another user"

(cd embedded && go build -o "$dir/embedded" .)
gossip=127.0.0.1:$(port) one=127.0.0.1:$(port) two=127.0.0.1:$(port)
run embedded-1 "$dir/embedded" -listen "$one" -gossip "$gossip"
until_true 10 answers "$one" || not_ok "embedded does not answer after 10 s"
run embedded-2 "$dir/embedded" -listen "$two" -gossip "127.0.0.1:$(port)" -join "$gossip"
until_true 20 answers "$two" || not_ok "the second embedded does not answer after 20 s"
six embedded "$one" "$two"

if (cd llm && go test ./... >"$dir/llm.log" 2>&1); then
	ok "llm: a proxy reserves tokens and requests, and settles what was used"
else
	not_ok "llm: its test fails"
fi

finish
