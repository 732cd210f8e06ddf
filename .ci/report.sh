# Functions for scripts that try something and report it case by case, to be sourced. A script calls ok or not_ok once
# a case, or expect; .ci/run counts the lines. The script's exit code is that of finish.

cases=0
failures=0

ok() {
	cases=$((cases + 1))
	echo "ok $cases - $*"
}

not_ok() {
	cases=$((cases + 1))
	failures=$((failures + 1))
	echo "not ok $cases - $*"
}

# expect WANT GOT WHAT: one case, that GOT is WANT.
expect() {
	if [ "$1" = "$2" ]; then ok "$3"; else not_ok "$3: want $1, got $2"; fi
}

# until_true SECONDS COMMAND…: tries every 100 ms until COMMAND succeeds or SECONDS have passed.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

# need COMMAND PACKAGE: ends the script if COMMAND is not installed.
need() {
	command -v "$1" >/dev/null && return
	echo "$0: $1 is missing; install it (Debian: apt-get install $2)" >&2
	exit 127
}

# status URL [CURL ARGUMENTS…]: the HTTP status, 000 if nobody answers within 5 s.
status() {
	curl -s -o /dev/null -w '%{http_code}' --max-time 5 "$@" || true
}

finish() {
	echo "$((cases - failures)) passed, $failures failed"
	[ $failures = 0 ] && [ $cases != 0 ]
}
