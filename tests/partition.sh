#!/usr/bin/env bash
# Cuts a real cluster in two, with a network namespace per node, and heals it: tests/partition.sh [nodes [minority]]
# (3 and 1 if not said). It counts what each side admits of keys that everybody asks for, and how long views, and right answers,
# take to come back. Needs Linux, root, ip, curl, jq and Go; whatever happens, it leaves no namespace behind.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/report.sh
need ip iproute2
need curl curl
need jq jq
[ "$(id -u)" = 0 ] || { echo "$0: network namespaces need root" >&2; exit 127; }

nodes=${1:-3} minority=${2:-1}
limit=60 keys=20 cut_for=${CUT_FOR:-12}
id=pst$$
dir=$(mktemp -d)
clean() {
	local code=$?
	for i in $(seq "$nodes"); do
		[ -f "$dir/$i.pid" ] && kill "$(cat "$dir/$i.pid")" 2>/dev/null || true
	done
	if [ $code != 0 ] || [ $failures != 0 ]; then
		for i in $(seq "$nodes"); do echo "--- n$i"; grep -v '"members"' "$dir/$i.log" | tail -12 || true; done
	fi
	wait 2>/dev/null || true
	for i in $(seq "$nodes"); do ip netns del "$id-$i" 2>/dev/null || true; done
	ip netns del "$id-switch" 2>/dev/null || true
	rm -rf "$dir"
}
trap clean EXIT

go build -o "$dir/penstock" ./cmd/node
cat >"$dir/limits.yaml" <<YAML
limits:
  - {name: share, algorithm: fixed_window, anchor: first_hit, limit: $limit, per: 1h}
  - {name: deny, algorithm: fixed_window, anchor: first_hit, limit: $limit, per: 1h, on_partition: deny}
YAML

# A bridge per side, in a namespace of their own, where no firewall of the machine looks at what passes; all nodes begin
# on the first.
ip netns add "$id-switch"
for b in a b; do ip -n "$id-switch" link add name side-$b type bridge && ip -n "$id-switch" link set side-$b up; done
# side BRIDGE NODE…: puts those nodes on that bridge
side() {
	local b=$1 i
	shift
	for i in "$@"; do ip -n "$id-switch" link set "n$i" master "side-$b"; done
}
address() { echo "10.97.0.$1"; }
for i in $(seq "$nodes"); do
	ip netns add "$id-$i"
	ip -n "$id-switch" link add "n$i" type veth peer name eth0 netns "$id-$i"
	ip -n "$id-switch" link set "n$i" master side-a up
	ip -n "$id-$i" addr add "$(address "$i")/24" dev eth0
	ip -n "$id-$i" link set eth0 up
	ip -n "$id-$i" link set lo up
done
for i in $(seq "$nodes"); do
	at=$(address "$i")
	join=()
	[ "$i" = 1 ] || join=(--join "$(address 1):7946")
	ip netns exec "$id-$i" "$dir/penstock" serve --insecure --name "n$i" --limits "$dir/limits.yaml" --redis off \
		--gossip "$at:7946" --peer "$at:7947" --grpc "$at:7948" --http "$at:7949" "${join[@]}" 2>"$dir/$i.log" &
	echo $! >"$dir/$i.pid"
done

# in NODE PATH [CURL-OPTION…]: what the node answers, asked from its own namespace
in_node() { ip netns exec "$id-$1" curl -s --max-time 3 "${@:3}" "http://$(address "$1"):7949$2"; }
active() { in_node "$1" /v1/members | jq '[.members[] | select(.state == "active")] | length'; }
all_see() { # N NODE…: those nodes see N active members, and one ring
	local want=$1 i
	shift
	local rings
	rings=$(for i in "$@"; do in_node "$i" /v1/members | jq -r '[([.members[] | select(.state == "active")] | length), .ring] | @text'; done | sort -u)
	[ "$(wc -l <<<"$rings")" = 1 ] && [ "$(jq '.[0]' <<<"$rings")" = "$want" ]
}
settled() { # NODE…: those nodes answer for every key, and not by falling back
	local i
	for i in "$@"; do
		[ "$(ask "$i" share 0 | jq '[.decisions[] | select(.degraded and .source == "fallback")] | length')" = 0 ] || return 1
	done
}
marked() { # NODE: the keys that it answers with a mark though a holder decides
	ask "$1" share 0 | jq -r '.decisions | to_entries[] | select(.value.degraded and .value.source != "fallback") | "k\(.key)"' | sort
}
doomed() { # the keys whose owner and heir are both on the small side
	local k
	for k in $(seq 0 $((keys - 1))); do
		in_node 1 "/v1/ring?key=k$k" | jq -r --argjson n "$minority" 'def small: ltrimstr("n") | tonumber <= $n; select((.owner | small) and (.heir | small)) | .key'
	done | sort
}
items() { jq -cn --arg limit "$1" --argjson cost "$2" --argjson keys "$keys" '{items: [range($keys) | {limit: $limit, key: "k\(.)", cost: $cost}]}'; }
ask() { in_node "$1" /v1/check -d "$(items "$2" "$3")"; }
# take NODE LIMIT COST SIDE: takes from every key, and notes key, units admitted, whether the answer was degraded (at the small side: came from
#   a share; an answer of its owner that left after its right had ended is marked, too, and is not a share's), and when it was asked
take() {
	local answer at
	at=$(since "$cut")
	if ! answer=$(ask "$1" "$2" "$3") || ! jq -e .decisions >/dev/null 2>&1 <<<"$answer"; then
		echo "$4" >>"$dir/errors"
		return
	fi
	jq -r --arg side "$4" --arg limit "$2" --argjson cost "$3" --arg at "$at" '.decisions | to_entries[] | [$side, $limit, .key, (if .value.allowed then $cost else 0 end), (.value.degraded and ($side != "small" or .value.source == "fallback")), $at] | @tsv' <<<"$answer" >>"$dir/taken"
}
# most LIMIT SIDE-PATTERN: the most units admitted of one key
most() { awk -v limit="$1" -v side="$2" '$2 == limit && $1 ~ side {n[$3] += $4} END {m = 0; for (k in n) if (n[k] > m) m = n[k]; print m}' "$dir/taken"; }
# account LIMIT SHARES: what became of the key of which most was admitted; "over: n" if there is one of which n more was admitted than
#   the limit, and what the minority may admit from its shares, and
#   what it decided before it had noticed the cut, as an owner or, by on_error, from its shares, and
#   what the majority admitted from its shares before it had, which is charged afterwards, as far as the limit reaches, and
#   of two or more nodes that are cut off: what was taken before. Owner and heir may be among them, and no other node has a copy.
account() {
	awk -v name="$1" -v limit="$limit" -v shares="$2" -v minority="$minority" '$2 == name {
		n[$3] += $4; by[$3, $1] += $4
		if ($5 == "true") degraded[$3, $1] += $4
		if ($5 == "true" && $1 == "small" && !shares && $6 <= 2) unnoticed[$3] += $4
	} END {
		for (k in n) {
			may = limit + shares + by[k, "small"] - degraded[k, "small"] + unnoticed[k] + degraded[k, "large"] + (minority > 1 ? by[k, "before"] : 0)
			if (n[k] - may > over) over = n[k] - may
			if (worst == "" || n[k] > n[worst]) worst = k
		}
		printf "of that key: %d before the cut, %d by the minority (%d of it from its shares), %d by the majority (%d), %d after the heal\n",
			by[worst, "before"], by[worst, "small"], degraded[worst, "small"], by[worst, "large"], degraded[worst, "large"], by[worst, "after"]
		if (over > 0) printf "over: %d\n", over
	}' "$dir/taken"
}
# unnoticed: when the minority last decided as if there were no cut, in seconds after it
unnoticed() { awk '$1 == "small" && $5 != "true" && $4 > 0 && $6 > m {m = $6} END {print m + 0}' "$dir/taken"; }
since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}'; }

all=$(seq "$nodes")
small=$(seq "$minority")
large=$(seq $((minority + 1)) "$nodes")
if until_true 30 all_see "$nodes" $all && until_true 30 settled $all; then ok "$nodes nodes see each other"; else not_ok "the cluster does not come together"; fi
cut=$(date +%s.%N)
for i in $all; do
	for l in share deny; do take "$i" $l 2 before; done
done
sleep 1
doomed >"$dir/doomed"
[ -z "$(marked "$nodes")" ] && ok "nothing is marked before the cut" || not_ok "keys are marked before the cut: $(marked "$nodes" | xargs)"

cut=$(date +%s.%N)
side b $small
right=
while awk -v a="$cut" -v b="$(date +%s.%N)" -v n="$cut_for" 'BEGIN {exit b - a > n}'; do
	for i in $small; do
		for l in share deny; do take "$i" $l 1 small; done
	done
	for i in $large; do
		for l in share deny; do take "$i" $l 3 large; done
	done
	if [ -z "$right" ] && settled $large; then right=$(since "$cut"); fi
done
echo "cut for $(since "$cut") s; the side of $((nodes - minority)) answers as before ${right:-never} s after the cut"
[ -n "$right" ] && ok "the majority goes on" || not_ok "the majority never gets back to right answers"

marked "$nodes" >"$dir/marked"
if cmp -s "$dir/doomed" "$dir/marked"; then
	ok "the $(wc -l <"$dir/doomed") keys whose owner and heir are both cut off are marked, and no others"
else
	not_ok "marked: $(xargs <"$dir/marked"); owner and heir cut off: $(xargs <"$dir/doomed")"
fi

healed=$(date +%s.%N)
side a $small
if until_true 10 all_see "$nodes" $all; then
	echo "views agree $(since "$healed") s after the heal"
	ok "the views agree again"
else
	not_ok "the views do not agree: $(for i in $all; do active "$i"; done | xargs)"
fi
until_true 20 settled $all && ok "every node answers as before $(since "$healed") s after the heal" || not_ok "some answers stay degraded"
for _ in $(seq "$limit"); do
	for l in share deny; do take 1 $l 1 after; done
done

errors=$( (cat "$dir/errors" 2>/dev/null || true) | wc -l)
share=$(((limit / nodes) * minority))
for l in share deny; do
	shares=$([ $l = share ] && echo $share || echo 0)
	echo "limit $limit, on_partition $([ $l = share ] && echo proportional || echo deny): of one key at most $(most $l .) admitted in all"
	text=$(account $l "$shares")
	echo "$text"
	if [[ $text == *over:* ]]; then not_ok "$l: more than $((limit + shares)) and what both sides admit before they notice the cut"; else ok "$l: at most $((limit + shares)), and what both sides admit before they notice the cut"; fi
done
# What it holds it lets go of after 1.2 s without contact, at its next tick.
last=$(unnoticed)
if awk -v t="$last" 'BEGIN {exit t > 2}'; then ok "the minority notices the cut"; else not_ok "the minority decides as if there were no cut ${last} s after it"; fi
echo "$errors requests failed"
[ "$errors" = 0 ] && ok "no request failed" || not_ok "$errors requests failed"

# Two nodes that do not reach each other, though all others reach both, and another one dies: all members answer a claim, so
# what these two say to each other goes by way of the others.
left=$nodes
if [ "$nodes" -gt 3 ]; then
	ip -n "$id-2" route add blackhole "$(address 3)/32"
	ip -n "$id-3" route add blackhole "$(address 2)/32"
	sleep 4
	kill -9 "$(cat "$dir/$nodes.pid")"
	killed=$(date +%s.%N)
	left=$((nodes - 1))
	if until_true 30 settled $(seq "$left"); then
		ok "all keys of node $nodes are decided on $(since "$killed") s after it was killed, while two others do not reach each other"
	else
		not_ok "keys of node $nodes stay undecided while two others do not reach each other"
	fi
	ip -n "$id-2" route del blackhole "$(address 3)/32"
	ip -n "$id-3" route del blackhole "$(address 2)/32"
	until_true 30 all_see "$left" $(seq "$left") && ok "the $left others see each other again" || not_ok "the $left others do not find together"
fi

# Once more, and soon after the heal all others are killed: what is left of their connections from before the cut hides no
# death, so the last node knows that it is alone while it has its right, and goes on. It says recover otherwise.
side b 1
sleep 4
side a 1
until_true 20 settled 1 && ok "node 1 is back after another cut" || not_ok "node 1 stays cut off"
sleep 1
for i in $(seq 2 "$left"); do kill -9 "$(cat "$dir/$i.pid")"; done
killed=$(date +%s.%N)
alone() { all_see 1 1 && settled 1; }
if until_true 10 alone; then
	ok "the last node decides alone $(since "$killed") s after all others were killed"
else
	not_ok "the last node does not go on alone: $(in_node 1 /readyz)"
fi
finish
