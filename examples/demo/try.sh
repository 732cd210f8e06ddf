#!/usr/bin/env bash
# Tries what the README promises a newcomer: `go run ./cmd/node demo`, and the sixth request for a key of the limit
# "demo" is denied, with its headers, on whichever of the three nodes it lands. Uses the default ports.
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/report.sh
need go golang
need curl curl

dir=$(mktemp -d)
demo=
clean() {
	[ $failures = 0 ] || tail -n 30 "$dir/demo.log"
	# go run passes the signal on to nobody: its child gets it by the process group.
	[ -z "$demo" ] || kill -TERM -- "-$demo" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap clean EXIT

set -m
go run ./cmd/node demo >"$dir/demo.log" 2>&1 </dev/null &
demo=$!
set +m
nodes=(127.0.0.1:7949 127.0.0.1:7959 127.0.0.1:7969)
ready() { [ "$(status "http://$1/readyz")" = 200 ]; }
whole() { curl -s --max-time 2 "http://$1/v1/members" | grep -o '"state": *"active"' | wc -l | grep -qx 3; }
for node in "${nodes[@]}"; do
	if until_true 60 ready "$node" && until_true 20 whole "$node"; then
		ok "$node is ready, in a cluster of three"
	else
		not_ok "$node is not ready, or sees no cluster of three"
	fi
done

if kill -0 $demo; then ok "the demo runs"; else not_ok "the demo has ended: who answered?"; fi

for last in "${nodes[@]}"; do
	key=$last-$RANDOM
	for i in 0 1 2 3 4; do
		expect 200 "$(status "http://${nodes[$((i % 3))]}/v1/check?limit=demo&key=$key")" "request $((i + 1)) of 5"
	done
	answer=$(curl -s -i --max-time 5 "http://$last/v1/check?limit=demo&key=$key" | tr -d '\r')
	for line in 'HTTP/1.1 429' 'RateLimit: "demo";r=0' 'RateLimit-Policy: "demo";q=5;w=10' 'Retry-After: ' 'Content-Type: application/problem+json'; do
		if grep -qi "^$line" <<<"$answer"; then ok "the sixth, at $last: $line"; else not_ok "the sixth, at $last, has no $line: $answer"; fi
	done
done

kill -TERM -- "-$demo"
wait "$demo" || true
closed() { [ "$(status "http://${nodes[0]}/healthz")" = 000 ]; }
if until_true 15 closed; then ok "it stops at a signal"; else not_ok "it still answers 15 s after SIGTERM"; fi
demo=
finish
