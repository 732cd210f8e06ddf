#!/usr/bin/env bash
# Tries nginx.conf for real: three Penstock nodes, Debian's nginx in front of a page, 50 users who ask for it 40 times
# each, all at once, with a limit of 20. Exactly 1,000 of 2,000 requests get the page. Everything listens on
# loopback, on free ports, and works in a temporary folder that is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
. ../../.ci/report.sh
. ../../.ci/processes.sh
PATH=$PATH:/usr/sbin
need nginx nginx-light
need curl curl
need jq jq
need go golang

users=50 requests=40 limit=20
http=()
chmod 755 "$dir" # nginx's workers may run as somebody else
clean() {
	if [ $failures != 0 ]; then
		for address in "${http[@]}"; do
			curl -s --max-time 2 "http://$address/v1/status" | jq -c . || true
		done
		tail -n 20 "$dir"/node-*.log "$dir"/error.log 2>/dev/null || true
	fi
	[ ! -s "$dir/nginx.pid" ] || kill "$(cat "$dir/nginx.pid")" || true
	for pid in "${started[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	wait
	rm -rf "$dir"
}

(cd ../.. && go build -o "$dir/penstock" ./cmd/node)
seed=127.0.0.1:$(port)
for i in 1 2 3; do
	http+=("127.0.0.1:$(port)")
	gossip=$seed join=()
	[ $i = 1 ] || { gossip=127.0.0.1:$(port) && join=(--join "$seed"); }
	run node-$i "$dir/penstock" serve --name node-$i --limits limits.yaml --gossip "$gossip" --peer "127.0.0.1:$(port)" \
		--grpc off --redis off --http "${http[-1]}" "${join[@]}"
done
whole() { [ "$(curl -s --max-time 2 "http://$1/v1/members" | jq '[.members[] | select(.state == "active")] | length')" = 3 ]; }
for address in "${http[@]}"; do
	if until_true 30 whole "$address"; then ok "$address sees three nodes"; else not_ok "$address does not see three nodes after 30 s"; fi
done

listen=127.0.0.1:$(port)
sed -e "s/127.0.0.1:7949/${http[0]}/; s/127.0.0.1:7959/${http[1]}/; s/127.0.0.1:7969/${http[2]}/" \
	-e "s/127.0.0.1:8080/$listen/" nginx.conf >"$dir/nginx.conf"
cp -r html "$dir/"
nginx -p "$dir" -c nginx.conf -e "$dir/error.log"
listening() { curl -s -o /dev/null --max-time 2 "http://$listen/"; }
until_true 10 listening || { not_ok "nginx does not listen on $listen after 10 s"; finish; }

expect 400 "$(status "http://${http[0]}/v1/auth?limit=per-user&key=%7Bheader:X-User%7D&deny_status=403")" "a question without X-User, to a node"

# attempt N: every user asks one after the other over one connection, all users at once. Fills dir/codes-USER, pages.
attempt() {
	local clients=() u pid
	rm -f "$dir"/codes-* "$dir"/page-*
	for u in $(seq $users); do
		curl -s --max-time 60 -H "X-User: user-$1-$u" -o "$dir/page-$u-#1" -w '%{http_code}\n' \
			"http://$listen/?n=[1-$requests]" >"$dir/codes-$u" &
		clients+=($!)
	done
	for pid in "${clients[@]}"; do
		wait "$pid" || true
	done
}

# troubles: how many decisions were taken without their owner, and how often the members changed, since the start. A
# machine that gives the nodes no time for half a second makes them look dead to each other; what they promise then
# is another matter than what is tried here.
troubles() {
	local address
	{
		for address in "${http[@]}"; do
			curl -s --max-time 5 "http://$address/v1/status" | jq .items.degraded
		done
		cat "$dir"/node-*.log | grep -c '"msg":"members"'
	} | jq -s add
}

for try in 1 2 3; do
	before=$(troubles)
	attempt $try
	after=$(troubles)
	[ "$before" != "$after" ] || break
	echo "# attempt $try: the machine was too busy, $((after - before)) decisions or views were not those of a healthy cluster"
done
expect "$before" "$after" "a healthy cluster throughout: degraded decisions and changes of members"

count() { cat "$dir"/codes-* | grep -cx "$1" || true; }
expect $((users * limit)) "$(count 200)" "pages served"
expect $((users * (requests - limit))) "$(count 429)" "requests denied with 429"
expect $((users * requests)) "$(cat "$dir"/codes-* | wc -l)" "requests answered"
expect $((users * limit)) "$(grep -lx '<title>Behind the gate</title>' "$dir"/page-* | wc -l)" "answers that are the page"
uneven=0
for u in $(seq $users); do
	[ "$(grep -cx 200 "$dir/codes-$u")" = $limit ] || uneven=$((uneven + 1))
done
expect 0 $uneven "users with other than $limit pages"

headers=$(curl -s -o /dev/null -D - --max-time 5 -H "X-User: user-$try-1" "http://$listen/" | tr -d '\r')
for header in 'RateLimit: "per-user";r=0' 'RateLimit-Policy: "per-user";q=20;w=600' 'Retry-After: '; do
	if grep -qi "^$header" <<<"$headers"; then ok "a denial has the header $header"; else not_ok "no header $header in: $headers"; fi
done
finish
