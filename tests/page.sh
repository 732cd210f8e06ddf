#!/usr/bin/env bash
# Looks at the page of a node in a real browser without a window: it shows the members, the keys that have used most, as
# text whatever they are called, and a node that wants a token shows nothing without it.
set -euo pipefail
cd "$(dirname "$0")"
. ../.ci/report.sh
need chromium chromium
need curl curl
need go golang

dir=$(mktemp -d)
started=()
clean() {
	for pid in "${started[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	wait
	rm -rf "$dir"
}
trap clean EXIT

# port: prints one that nobody listens on.
port() {
	local p
	while p=$((20000 + RANDOM % 10000)); grep -qx $p "$dir/ports" || (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null; do
		:
	done
	echo $p | tee -a "$dir/ports"
}
touch "$dir/ports"

# node NAME FLAG…: a node that is alone.
node() {
	"$dir/penstock" serve --name "$1" --limits ../deploy/limits --gossip off --peer off --redis off --grpc off "${@:2}" >"$dir/$1.log" 2>&1 &
	started+=($!)
}
ready() { [ "$(status "http://$1/readyz")" = 200 ]; }

# look URL: prints the page as the browser has it after a moment. What it logs is of no interest.
look() {
	timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" --virtual-time-budget=5000 \
		--window-size=900,1000 --screenshot="$dir/page.png" --dump-dom "$1" 2>/dev/null
}

(cd .. && go build -o "$dir/penstock" ./cmd/node)
(umask 077 && echo a-token-of-some-length >"$dir/token")
open=127.0.0.1:$(port) closed=127.0.0.1:$(port)
node open --http "$open"
node closed --http "$closed" --auth-token-file "$dir/token"
for address in "$open" "$closed"; do
	if until_true 30 ready "$address"; then ok "$address is ready"; else not_ok "$address is not ready after 30 s"; fi
done
for key in alice alice alice '<b>bob</b>'; do
	curl -s -G -o /dev/null --data-urlencode "key=$key" "http://$open/v1/check?limit=signup"
done

look "http://$open/ui/" >"$dir/open.html"
shows() { if grep -qF "$1" "$dir/$2.html"; then ok "$2: $3"; else not_ok "$2: $3: $(head -c 4000 "$dir/$2.html")"; fi; }
shows 'open · ready · 1 of 1 nodes own keys' open "the page says how the node is"
shows '<tr class="self"><td>open</td><td>active</td><td>member</td>' open "it lists the members"
shows '<td>alice</td><td>signup</td><td class="number">3</td>' open "the key that has used most comes with what it has used"
shows '<tr class=""><td>signup</td>' open "it lists the limits"
shows '<td>&lt;b&gt;bob&lt;/b&gt;</td>' open "a key is a text, whatever it looks like"
look "http://$closed/ui/" >"$dir/closed.html"
shows 'authorization: send a token of this node' closed "without the token it shows what the node says"
if grep -q '<form id="login" hidden' "$dir/closed.html"; then not_ok "closed: no place for the token"; else ok "closed: it asks for the token"; fi
if [ -s "$dir/page.png" ]; then ok "it can be seen"; else not_ok "there is no picture of it"; fi
# PICTURE=page.png tests/page.sh keeps one.
[ -z "${PICTURE:-}" ] || { look "http://$open/ui/" >/dev/null && cp "$dir/page.png" "$PICTURE"; }
finish
