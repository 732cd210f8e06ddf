#!/usr/bin/env bash
# Tries docker-compose.yml for real: three containers become healthy, count together, and two go on when one stops.
# It builds the image from a binary built here, so it needs Go, Docker with docker-compose, curl and jq, but no
# registry. Whatever happens, it leaves no container, network or image behind.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/report.sh
need docker docker.io
need curl curl
need jq jq
if docker compose version >/dev/null 2>&1; then
	compose=(docker compose)
else
	need docker-compose docker-compose
	compose=(docker-compose)
fi
docker info >/dev/null 2>&1 || {
	echo "$0: no Docker engine answers; start it, or skip this" >&2
	exit 127
}

# An empty port lets the engine choose a free one. Quiet output, so that a failure is easy to find.
export COMPOSE_PROJECT_NAME=penstock-try-$$ PENSTOCK_IMAGE=penstock-try-$$
export NODE_1_HTTP='' NODE_1_GRPC='' NODE_2_HTTP='' NODE_2_GRPC='' NODE_3_HTTP='' NODE_3_GRPC=''
nodes=(node-1 node-2 node-3)
clean() {
	local code=$?
	if [ $code != 0 ] || [ $failures != 0 ]; then
		"${compose[@]}" ps || true
		"${compose[@]}" logs --no-color --tail 30 || true
	fi
	"${compose[@]}" down --volumes --timeout 3 >/dev/null 2>&1 || true
	docker image rm -f "$PENSTOCK_IMAGE" >/dev/null 2>&1 || true
}
trap clean EXIT

health() { docker inspect -f '{{.State.Health.Status}}' "$("${compose[@]}" ps -q "$1")"; }
healthy() { [ "$(health "$1")" = healthy ]; }
# active_members URL: how many members that node sees in the ring
active_members() { curl -s --max-time 2 "$1/v1/members" | jq '[.members[] | select(.state == "active")] | length'; }
sees() { [ "$(active_members "$1")" = "$2" ]; }
address() { echo "http://$("${compose[@]}" port "$1" 7949)"; }

CGO_ENABLED=0 go build -trimpath -o bin/penstock ./cmd/node
docker build -q -f Dockerfile.prebuilt -t "$PENSTOCK_IMAGE" . >/dev/null
"${compose[@]}" up -d --no-build 2>/dev/null

for node in "${nodes[@]}"; do
	if until_true 60 healthy "$node"; then ok "$node is healthy"; else not_ok "$node is $(health "$node") after 60 s"; fi
done
url=()
for node in "${nodes[@]}"; do
	url+=("$(address "$node")")
done
for i in 0 1 2; do
	if until_true 20 sees "${url[$i]}" 3; then ok "${nodes[$i]} sees 3 members"; else not_ok "${nodes[$i]} sees $(active_members "${url[$i]}") members after 20 s"; fi
done

# One key, asked for on all nodes in turn.
for i in 1 2 3 4 5; do
	expect 200 "$(status "${url[$((i % 3))]}/v1/check?limit=signup&key=alice")" "request $i of 5, at ${nodes[$((i % 3))]}"
done
for i in 0 1 2; do
	expect 429 "$(status "${url[$i]}/v1/check?limit=signup&key=alice")" "one too many, at ${nodes[$i]}"
done

# keys_answered WHEN URL…: of 30 keys, each asked for at every URL, all are answered within 5 s.
keys_answered() {
	local when=$1 bad=0 k u code
	shift
	for k in $(seq 30); do
		for u in "$@"; do
			code=$(status "$u/v1/check?limit=api&key=key-$k")
			[ "$code" = 200 ] || bad=$((bad + 1))
		done
	done
	expect 0 $bad "unanswered requests of $((30 * $#)), $when"
}
keys_answered "with three nodes" "${url[@]}"

"${compose[@]}" stop node-3 2>/dev/null
expect 0 "$(docker inspect -f '{{.State.ExitCode}}' "$("${compose[@]}" ps -q node-3)")" "exit code of the stopped node"
keys_answered "with node-3 stopped" "${url[0]}" "${url[1]}"

"${compose[@]}" start node-3 2>/dev/null
if until_true 60 healthy node-3; then ok "node-3 came back"; else not_ok "node-3 is $(health node-3) 60 s after its start"; fi
url[2]=$(address node-3)
if until_true 20 sees "${url[2]}" 3; then ok "node-3 sees 3 members again"; else not_ok "node-3 sees $(active_members "${url[2]}") members"; fi

"${compose[@]}" kill -s KILL node-2 2>/dev/null
keys_answered "with node-2 killed" "${url[0]}" "${url[2]}"

finish
