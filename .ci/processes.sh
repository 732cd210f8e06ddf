# A temporary folder, free ports and processes in the background, for scripts that run nodes, to be sourced after
# report.sh. All processes end with the script; after a failed case the last lines of their logs are printed.

dir=$(mktemp -d)
touch "$dir/ports"
declare -A started=()

clean() {
	[ $failures = 0 ] || tail -n 20 "$dir"/*.log || true
	for pid in "${started[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	wait
	rm -rf "$dir"
}
trap clean EXIT

# port: prints one that nobody listens on, and that was not printed before.
port() {
	local p
	while p=$((20000 + RANDOM % 10000)); grep -qx $p "$dir/ports" || (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null; do
		:
	done
	echo $p | tee -a "$dir/ports"
}

# run NAME COMMAND…: in the background, with a log; its process is ${started[NAME]}.
run() {
	"${@:2}" >"$dir/$1.log" 2>&1 &
	started[$1]=$!
}

answers() { [ "$(status "http://$1/")" != 000 ]; }
ready() { [ "$(status "http://$1/readyz")" = 200 ]; }
