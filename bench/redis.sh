#!/usr/bin/env bash
# Compares a node with redis-server that runs a GCRA script in Lua, both asked by redis-benchmark: 50 connections, with
# pipelines of 50 and without. They take turns, so that both have the same machine; the last lines are medians. On a machine
# that does other work too, the processor time of a decision is what to look at: it hardly depends on who else runs.
#
#   bash bench/redis.sh [ROUNDS]        5 rounds if not given
#
# Debian: apt-get install redis-server redis-tools. Everything listens on loopback, on free ports, and works in a temporary
# folder that is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/report.sh
need redis-server redis-server
need redis-benchmark redis-tools
need go golang
rounds=${1:-5}
keys=100000 connections=50
dir=$(mktemp -d)
servers=()
clean() {
	kill "${servers[@]}" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap clean EXIT

port() {
	local p
	while p=$((20000 + RANDOM % 10000)) && (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null; do :; done
	echo $p
}

# What CL.THROTTLE does, in a script: key, max_burst, count per period, period in seconds.
cat >"$dir/gcra.lua" <<'LUA'
local burst, count, period = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = period * 1000000 / count
local depth = interval * (burst + 1)
local tat = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local new = tat + interval
if new - depth > now then
  return {1, burst + 1, 0, math.ceil((new - depth - now) / 1000000), math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000))
return {0, burst + 1, math.floor((depth - (new - now)) / interval), -1, math.ceil((new - now) / 1000000)}
LUA

go build -o "$dir/penstock" ./cmd/node
redis=$(port)
redis-server --port "$redis" --bind 127.0.0.1 --save '' --appendonly no --dir "$dir" >"$dir/redis.log" &
servers+=($!)
ours=$(port)
"$dir/penstock" serve --name bench --gossip off --peer off --grpc off --http off --redis "127.0.0.1:$ours" >"$dir/penstock.log" 2>&1 &
servers+=($!)
for p in $redis $ours; do
	until_true 20 redis-cli -p "$p" PING || { cat "$dir"/*.log && exit 1; }
done
declare -A process=([$redis]=${servers[0]} [$ours]=${servers[1]})
# busy PID: its processor time in hundredths of a second.
busy() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }

script=$(redis-cli -p "$redis" SCRIPT LOAD "$(cat "$dir/gcra.lua")")

# run PORT PIPELINE COMMAND…: decisions a second, and the server's nanoseconds of processor time for each.
run() {
	local p=$1 depth=$2
	shift 2
	# A run of some seconds each: one that is over at once measures its own beginning.
	local n=$((depth == 1 ? 100000 : 250000)) before rate
	[ "$p" = "$redis" ] || [ "$depth" = 1 ] || n=$((8 * n))
	before=$(busy "${process[$p]}")
	rate=$(redis-benchmark -p "$p" -c $connections -P "$depth" -n $n -r $keys --csv "$@" 2>/dev/null | awk -F'"' 'NR == 2 { printf "%d", $4 }')
	echo "$rate $((($(busy "${process[$p]}") - before) * 10000000 / n))"
}
limit=(15 30 60)
# median COLUMN
median() { awk -v c="$1" '{ print $c }' | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for depth in 1 50; do
	run "$redis" $depth EVALSHA "$script" 1 key:__rand_int__ "${limit[@]}" >/dev/null # the keys are there from now on
	run "$ours" $depth CL.THROTTLE key:__rand_int__ "${limit[@]}" >/dev/null
	for ((i = 1; i <= rounds; i++)); do
		a=$(run "$redis" $depth EVALSHA "$script" 1 key:__rand_int__ "${limit[@]}")
		b=$(run "$ours" $depth CL.THROTTLE key:__rand_int__ "${limit[@]}")
		echo "$a" >>"$dir/redis.$depth"
		echo "$b" >>"$dir/ours.$depth"
		echo "pipeline $depth, round $i: redis-server ${a/ //s }ns, penstock ${b/ //s }ns"
	done
done
for depth in 1 50; do
	a=$(median 1 <"$dir/redis.$depth") b=$(median 1 <"$dir/ours.$depth")
	echo "pipeline $depth: redis-server $a/s, penstock $b/s, $(awk "BEGIN { printf \"%.2f\", $b / $a }") times as many"
	a=$(median 2 <"$dir/redis.$depth") b=$(median 2 <"$dir/ours.$depth")
	echo "pipeline $depth: redis-server $a ns, penstock $b ns of processor time, $(awk "BEGIN { printf \"%.2f\", $a / $b }") times less"
done
