#!/usr/bin/env bash
# Tries the examples in other languages for real, each with Debian's own interpreter and libraries,
# in front of a Penstock node: five requests of a user pass, the sixth does not and says when to
# come again, and a page whose node is away serves. What is not installed is skipped by name.
# Everything listens on loopback, on free ports, and works in a temporary folder.
set -euo pipefail
cd "$(dirname "$0")/../examples"
. ../.ci/report.sh
. ../.ci/processes.sh
PATH=$PATH:/usr/sbin
need curl curl
need go golang

# has WHAT PACKAGE COMMAND…: whether the command succeeds; if not, WHAT is skipped.
has() {
	"${@:3}" >/dev/null 2>&1 && return
	echo "SKIPPED: $1: Debian's $2 is not installed"
	return 1
}

(cd .. && go build -o "$dir/penstock" ./cmd/node)
grpc=127.0.0.1:$(port) pages=127.0.0.1:$(port) redis=127.0.0.1:$(port) away=127.0.0.1:$(port)
run node "$dir/penstock" serve --name node --limits limits.yaml --gossip off --peer off --redis "$redis" --grpc "$grpc" --http "$pages"
if until_true 30 ready "$pages"; then ok "a node is ready"; else not_ok "no node is ready after 30 s"; fi

# page NAME COMMAND…: a page, with its address as the last argument.
page() {
	local name=$1 address=127.0.0.1:$(port) i answer line
	run "$name" env PENSTOCK="$pages" "${@:2}" "$address"
	if until_true 30 answers "$address"; then ok "$name listens"; else not_ok "$name does not listen after 30 s"; return; fi
	six "$name" "$address"
	address=127.0.0.1:$(port)
	run "$name-alone" env PENSTOCK="$away" "${@:2}" "$address"
	if until_true 30 answers "$address"; then ok "$name listens, and its node is away"; else not_ok "$name does not listen"; return; fi
	expect hello "$(curl -s --max-time 5 -H "X-User: $name" "http://$address/")" "$name serves while its node is away"
}
six() { # NAME ADDRESS
	local name=$1 address=$2 i answer line
	for i in 1 2 3 4 5; do
		expect 200 "$(status -H "X-User: $name & co" "http://$address/")" "$name: request $i of 5"
	done
	answer=$(curl -s -i --max-time 5 -H "X-User: $name & co" "http://$address/" | tr -d '\r')
	for line in 'HTTP/1.[01] 429' 'RateLimit: "api";r=0' 'RateLimit-Policy: "api";q=5' 'Retry-After: 3' 'Content-Type: application/problem+json'; do
		if grep -qi "^$line" <<<"$answer"; then ok "$name: the sixth: $line"; else not_ok "$name: the sixth has no $line: $answer"; fi
	done
	if grep -q hello <<<"$answer"; then not_ok "$name: the sixth got the page"; else ok "$name: the sixth did not get the page"; fi
	expect 200 "$(status -H "X-User: another of $name" "http://$address/")" "$name: another user"
}
# asks NAME COMMAND…: a program that asks once; it says "allowed" five times, and then "denied".
asks() {
	local i said
	for i in 1 2 3 4 5; do
		expect allowed "$("${@:2}" 2>&1)" "$1: request $i of 5"
	done
	said=$("${@:2}" 2>&1) || true
	case $said in denied*) ok "$1: the sixth: $said" ;; *) not_ok "$1: the sixth: $said" ;; esac
}

python=/usr/bin/python3
if has Python python3 $python --version; then
	page python $python python/page.py
fi
if has "Python by gRPC" "python3-grpcio, python3-protobuf and protobuf-compiler" $python -c 'import grpc, google.protobuf' && has "Python by gRPC" protobuf-compiler protoc --version; then
	# The package of the messages has a name of its own: penstock.py is here too.
	mkdir -p "$dir/proto/penstock_pb/v1"
	cp ../proto/penstock/v1/penstock.proto "$dir/proto/penstock_pb/v1/"
	protoc -I "$dir/proto" --python_out="$dir" "$dir/proto/penstock_pb/v1/penstock.proto"
	asks "Python by gRPC" env PYTHONPATH="$dir" $python python/ask_grpc.py "$grpc" api grpc-user
fi
if has redis-py python3-redis $python -c 'from redis import Redis'; then
	asks redis-py $python python/ask_redis.py "$redis" redis-user
fi
if has Node.js nodejs node --version; then
	page node.js node node/page.js
fi
if has Java default-jdk-headless javac -version; then
	page java java java/Page.java
fi
if has PHP php-cli php --version; then
	printf '#!/bin/sh\nexec php -S "$1" php/page.php\n' >"$dir/php"
	page php sh "$dir/php"
fi
asks shell env PENSTOCK="$pages" sh shell/ask.sh api shell-user
expect "allowed: no answer from $away" "$(PENSTOCK=$away sh shell/ask.sh api shell-user)" "shell: the node is away"
if has HAProxy haproxy haproxy -v; then
	behind=127.0.0.1:$(port)
	mkdir "$dir/site" && echo hello >"$dir/site/index.html"
	run site $python -m http.server --bind 127.0.0.1 --directory "$dir/site" "${behind##*:}"
	until_true 30 answers "$behind" || not_ok "the server behind HAProxy does not listen"
	printf '#!/bin/sh\ncd haproxy && LISTEN=$1 exec haproxy -db -f haproxy.cfg\n' >"$dir/haproxy"
	SERVER=$behind page haproxy sh "$dir/haproxy"
fi
finish
