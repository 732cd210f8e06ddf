#!/usr/bin/env bash
# Runs the fuzz targets, and prints a line of a table for each: how many inputs it tried, how many a second of processor
# time, how many of them reached new code, and how many failed.
#
#   make fuzz T=10s                      each target for ten seconds
#   make fuzz ONLY=Redis T=10m           the targets whose names match this expression
#   make fuzz WORKERS=2                  with so many workers at once
#   make fuzz JOBS=2                     so many targets at a time: on a busy machine each tries fewer inputs
#
# Only a room itself and the rooms below it are instrumented. `go test -fuzz` instruments all libraries and the standard
# library too, and clears and compares their counters after each input: 131 kB instead of 11 kB in rpc, which costs more
# than most inputs do. Inputs that reached new code are kept in Go's build cache, as `go test -fuzz` keeps them, and a
# failing input is written to testdata/fuzz of its package.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work GOMAXPROCS=${WORKERS:-1} T=${T:-10s} TIMEFORMAT='%U %S'

mapfile -t rooms < <(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v '^./\(bench\|examples\|tools\)/' | xargs -n1 dirname | sort -u)
cache=$(go env GOCACHE)/fuzz/penstock
export cache

# fuzz ROOM TARGET PROGRAM: its output goes to said, its seconds of processor time to used.
fuzz() {
	local said=$3.$2.said used=$3.$2.used
	# Without a bound the fuzzer may spend a minute on making one input shorter, and mutates nothing meanwhile.
	{ time (cd "$1" && "$3" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$T" -test.parallel "$GOMAXPROCS" \
		-test.fuzzminimizetime 50x -test.fuzzcachedir "$cache/${1#./}" >"$said" 2>&1); } 2>"$used" && return
	# At its end the fuzzer sometimes takes its own deadline for a failure (golang.org/issue/75804); that writes no input.
	grep -q '^    context deadline exceeded$' "$said" && ! grep -q 'Failing input written' "$said"
}

# line ROOM TARGET PROGRAM: fuzzes it, and prints its line.
line() {
	local verdict=ok failed=0 tried new
	fuzz "$@" || verdict='not ok' failed=1
	# The last line that counts is "fuzz: elapsed: 9s, execs: 8167 (903/sec), new interesting: 12 (total: 40)".
	read -r tried new < <(sed -n 's/.*execs: \([0-9]*\) .*new interesting: \([0-9]*\).*/\1 \2/p' "$3.$2.said" | tail -1)
	awk -v name="$verdict ${1#./} $2" -v tried="${tried:-0}" -v new="${new:-0}" -v failed=$failed \
		'{ printf "%-42s %11d %9d %6d %9d\n", name, tried, tried / ($1 + $2), new, failed }' "$3.$2.used"
	[ $failed = 0 ] || cat "$3.$2.said"
	return $failed
}
export -f fuzz line

for room in "${rooms[@]}"; do
	targets=$(grep -ho '^func Fuzz[A-Za-z]*' "$room"/*_test.go | cut -c6- | grep -E "${ONLY:-.}") || continue
	program=$work/${room//[^a-z]/_}
	go test -c -gcflags="penstock/${room#./}/...=-d=libfuzzer" -o "$program" "$room" || exit 1
	for target in $targets; do echo "$room $target $program"; done >>"$work/list"
done
[ -s "$work/list" ] || exit 0
printf '%-42s %11s %9s %6s %9s\n' target executions a-second new failures
xargs -a "$work/list" -L1 -P "${JOBS:-1}" bash -c 'line "$@"' line || exit 1
