#!/usr/bin/env bash
# Looks at the page of a cluster of three nodes in a real browser without a window, at three widths: it shows the checks, limits
# and keys of all nodes, a node that is killed with what that cost, a node that leaves; keys are texts whatever they are
# called; a node that wants a token shows nothing without it.
set -euo pipefail
cd "$(dirname "$0")"
. ../.ci/report.sh
. ../.ci/processes.sh
need chromium chromium
need curl curl
need go golang

# node NAME FLAG…: a node.
node() {
	run "$1" "$dir/penstock" serve --name "$1" --limits "$dir/limits" --redis off --grpc off "${@:2}"
}
look() { timeout 120 "$dir/browser" "$@"; }
# shows FILE TEXT WHAT: one case, that a file has a text.
shows() { if grep -qF -- "$2" "$1"; then ok "$3"; else not_ok "$3: $(head -c 3000 "$1")"; fi; }
# holds FILE NAME WHAT: one case, that a line NAME of a file is true.
holds() { expect true "$(sed -n "s/^$2 //p" "$1")" "$3"; }

(cd .. && go build -o "$dir/penstock" ./cmd/node)
go build -C ../tools -o "$dir/browser" ./browser
mkdir "$dir/limits"
cat >"$dir/limits/limits.yaml" <<'YAML'
limits:
  - {name: api, algorithm: gcra, limit: 100, per: 1s, burst: 200}
  - {name: signup, algorithm: fixed_window, anchor: first_hit, limit: 5, per: 1h}
  - {name: "../../etc/<b>pass</b>?wd#", algorithm: fixed_window, limit: 5, per: 1h}
  - {name: tried, algorithm: fixed_window, limit: 100, per: 1h, candidate: {limit: 1}}
  - {name: quiet, algorithm: fixed_window, limit: 1, per: 1h, dry_run: true}
rules:
  - match: {path: "/login*"}
    apply: [{limit: signup, key: "{ip}"}]
YAML
(umask 077 && cat >"$dir/clients" <<'YAML'
clients:
  - {name: reader, token: a-token-that-reads, admin: read}
  - {name: checker, token: a-token-that-checks, check: {limits: ["*"]}}
YAML
)
declare -A http=()
seed=127.0.0.1:$(port)
for n in n1 n2 n3; do
	http[$n]=127.0.0.1:$(port)
	gossip=$seed
	[ $n = n1 ] || gossip=127.0.0.1:$(port)
	node $n --http "${http[$n]}" --gossip "$gossip" --peer "127.0.0.1:$(port)" $([ $n = n1 ] || echo --join "$seed")
done
http[closed]=127.0.0.1:$(port)
node closed --http "${http[closed]}" --gossip off --peer off --auth-token-file "$dir/clients"
for n in n1 n2 n3 closed; do
	if until_true 30 ready "${http[$n]}"; then ok "$n is ready"; else not_ok "$n is not ready after 30 s: $(tail -5 "$dir/$n.log")"; fi
done

page="http://${http[n1]}/ui/"
for n in n1 n2 n3; do
	for key in alice alice '<b>bob</b>'; do
		curl -s -G -o /dev/null --data-urlencode "key=$key" "http://${http[$n]}/v1/check?limit=signup"
	done
	curl -s "http://${http[$n]}/v1/check?limit=tried&key=k" "http://${http[$n]}/v1/check?limit=quiet&key=k" >/dev/null
	curl -s -G -o /dev/null --data-urlencode 'limit=../../etc/<b>pass</b>?wd#' "http://${http[$n]}/v1/check?key=k"
done

# Keys that were asked for a minute ago are not among those asked for lately: some more are, all the time.
(while :; do
	curl -s "http://${http[n1]}/v1/check?limit=api&key=asked-[1-4]" >/dev/null || true
	sleep 1
done) &
started[lately]=$!

cat >"$dir/seen.js" <<'JS'
(() => {
  const cells = (id) => [...document.querySelectorAll("#" + id + " tr")].map((r) => [...r.cells].map((c) => c.textContent).join("|")).join("\n");
  return ["members", "limits", "heavy", "top", "rules", "events"].map(cells).join("\n");
})()
JS
# widest says whether the page is wider than the window, and whether text is too faint or too small to read.
cat >"$dir/fit.js" <<'JS'
(() => {
  const light = (c) => {
    const [r, g, b] = c.match(/[\d.]+/g).map(Number).map((v) => (v /= 255, v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!/, 0\)$|transparent/.test(c)) return c;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = 99, where = "";
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length || e.closest("svg")) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst) [worst, where] = [ratio, e.tagName + " " + e.textContent.slice(0, 30)];
  }
  const style = getComputedStyle(document.documentElement);
  for (const name of ["--allowed", "--denied", "--degraded", "--beyond"]) {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = style.getPropertyValue(name);
    const [a, b] = [light(getComputedStyle(probe).color), light(ground(document.body))].sort((x, y) => y - x);
    probe.remove();
    if ((a + 0.05) / (b + 0.05) < worst) [worst, where] = [(a + 0.05) / (b + 0.05), name];
  }
  return "fits " + (document.documentElement.scrollWidth <= innerWidth) + "\ncontrast " + (worst >= 4.5) + "\nworst " + worst.toFixed(2) + " " + where;
})()
JS
filled='document.querySelectorAll("#limits tr").length >= 5 && document.querySelectorAll("#heavy tr").length >= 3 && document.querySelectorAll("#members tr").length === 3 && document.querySelectorAll("#rules tr").length >= 1'
for look in "390" "800" "1600" "1600 -dark"; do
	set -- $look
	if look -width "$1" ${2:-} "$page" "wait=$filled" "eval=$(cat "$dir/fit.js")" "eval=$(cat "$dir/seen.js")" "picture=$dir/page-$1${2:-}.png" \
		>"$dir/seen" 2>&1; then
		ok "$look: the page shows limits, keys and nodes, and complains of nothing"
	else
		not_ok "$look: $(head -c 3000 "$dir/seen")"
	fi
	holds "$dir/seen" fits "$look: nothing is wider than the window"
	holds "$dir/seen" contrast "$look: contrast of text and lines is 4.5 at least ($(sed -n 's/^worst //p' "$dir/seen"))"
	[ -e "$dir/first" ] || cp "$dir/seen" "$dir/first"
	if [ -s "$dir/page-$1${2:-}.png" ]; then ok "$look: it can be seen"; else not_ok "$look: there is no picture of it"; fi
done
shows "$dir/first" 'signup|5 in 1h, fixed window|file|8|1|0|0|' "a limit comes with what all nodes have counted"
shows "$dir/first" 'tried|100 in 1h, fixed window|file|3|0|0|0|k 3|1 in 1h, fixed window|2|k 2|0|' "a candidate comes with what it would have denied, and to which keys"
shows "$dir/first" 'quiet|1 in 1h, fixed window, dry run|file|1|0|2|' "checks that are let through beyond a limit are counted"
shows "$dir/first" '../../etc/<b>pass</b>?wd#|' "a limit may be named like a path"
shows "$dir/first" '<b>bob</b>|signup|3|0|' "a key is a text, whatever it looks like"
shows "$dir/first" 'path: /login*|signup for {ip}' "it lists the rules"

# Fifty nodes, of which two have failed: the answers of n1 with more nodes in them. The page counts them, and draws them all.
go build -C ../tools -o "$dir/fifty" ./fifty
many=127.0.0.1:$(port)
run fifty "$dir/fifty" -node "${http[n1]}" -listen "$many"
if until_true 10 ready "$many"; then ok "fifty nodes are simulated"; else not_ok "no fifty nodes: $(cat "$dir/fifty.log")"; fi
cat >"$dir/fifty.js" <<'JS'
(() => {
  const text = (id) => document.getElementById(id).innerText;
  const names = [...document.querySelectorAll("#members tr button")];
  return "summary " + text("summary").includes("48 of 48 nodes own keys") +
    "\nfailed " + ([...document.querySelectorAll("#members tr.bad")].length === 2) +
    "\nnames " + names.every((b) => b.offsetHeight < 2 * parseFloat(getComputedStyle(b).fontSize)) +
    "\nowned " + (new Set([...document.querySelectorAll("#members tr")].map((r) => r.cells[4].textContent)).size > 1);
})()
JS
fifty='document.querySelectorAll("#members tr").length === 50 && document.querySelectorAll("#heavy tr").length >= 3 && document.querySelectorAll("#limits tr").length >= 5'
for look in "390" "800" "1600" "1600 -dark"; do
	set -- $look
	if look -width "$1" ${2:-} "http://$many/ui/" "wait=$fifty" sleep=1s "eval=$(cat "$dir/fit.js")" "eval=$(cat "$dir/fifty.js")" \
		"picture=$dir/fifty-$1${2:-}.png" >"$dir/seen" 2>&1; then
		ok "$look: the page shows fifty nodes, and complains of nothing"
	else
		not_ok "$look, fifty nodes: $(head -c 3000 "$dir/seen")"
	fi
	holds "$dir/seen" fits "$look: with fifty nodes nothing is wider than the window"
	holds "$dir/seen" contrast "$look: with fifty nodes contrast is 4.5 at least ($(sed -n 's/^worst //p' "$dir/seen"))"
	holds "$dir/seen" summary "$look: those that own keys are counted"
	holds "$dir/seen" failed "$look: those that have failed are marked"
	holds "$dir/seen" names "$look: no name is broken"
	if [ -s "$dir/fifty-$1${2:-}.png" ]; then ok "$look: fifty nodes can be seen"; else not_ok "$look: there is no picture of fifty nodes"; fi
done
holds "$dir/seen" owned "the partitions of fifty nodes are counted"

# What a screen reader needs: names of all that can be used, headers of rows, and the graph's values on a slider.
cat >"$dir/named.js" <<'JS'
(() => {
  const hidden = (e) => !e.getClientRects().length;
  const nameless = [...document.querySelectorAll("input, select, button, a, [role=region], svg[role=img], fieldset")].filter((e) => !hidden(e) &&
    !(e.labels && e.labels.length) && !e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby")) && !e.textContent.trim());
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  const rows = [...document.querySelectorAll("tbody tr")];
  return "named " + (nameless.length === 0) + "\nnameless " + nameless.map((e) => e.outerHTML.slice(0, 80)).join(" ") +
    "\nonce " + (new Set(ids).size === ids.length) +
    "\nheaders " + (rows.length > 9 && rows.every((r) => r.cells[0].getAttribute("role") === "rowheader"));
})()
JS
if look "$page" "wait=$filled" "eval=$(cat "$dir/named.js")" 'eval=document.getElementById("when").focus()' key=ArrowLeft \
	'wait=/^[0-9:]{8}: allowed [0-9.,]+, denied/.test(document.getElementById("when").getAttribute("aria-valuetext"))' >"$dir/named" 2>&1; then
	ok "the slider says the time and the values"
else
	not_ok "slider: $(head -c 3000 "$dir/named")"
fi
holds "$dir/named" named "all that can be used has a name ($(sed -n 's/^nameless //p' "$dir/named"))"
holds "$dir/named" once "no name of a place is given twice"
holds "$dir/named" headers "rows have headers"

# A key, by keyboard alone.
if look "$page" "wait=$filled" 'eval=document.getElementById("limit").focus(), document.execCommand("insertText", false, "signup")' key=Tab \
	'eval=document.execCommand("insertText", false, "alice"), document.activeElement.id' key=Tab 'eval=document.activeElement.textContent' key=Enter \
	'wait=document.querySelectorAll("#answers tr").length === 6' 'eval=document.getElementById("found").innerText' \
	'eval=[...document.getElementById("answers").rows[0].cells].map((c) => c.textContent).join("|")' \
	'eval=document.getElementById("reset").click(), document.getElementById("reset").click(), 1' \
	'wait=document.getElementById("key-said").textContent === "The key was reset."' >"$dir/key" 2>&1; then
	ok "a key is looked up without a mouse, with its latest answers at all doors, and reset"
else
	not_ok "a key: $(head -c 3000 "$dir/key")"
fi
shows "$dir/key" 'denied, again in' "the latest answer about the key is shown"
shows "$dir/key" 'heir, with a copy' "it says where the key lives, and where its copy is"

# A node dies while it is asked.
(while :; do
	curl -s "http://${http[n1]}/v1/check?limit=api&key=k[1-20]" "http://${http[n2]}/v1/check?limit=api&key=k[1-20]" >/dev/null || true
	sleep 0.05
done) &
started[traffic]=$!
look "$page" "wait=$filled" sleep=4s "eval=1" 'wait=document.querySelector("#failed .verdict b") !== null' \
	'wait=document.querySelector("#failed").innerText.includes("is back")' "picture=$dir/killed.png" \
	'eval=document.getElementById("failed").innerText' "eval=$(cat "$dir/seen.js")" >"$dir/killed" 2>&1 &
looking=$!
sleep 4
kill -9 "${started[n3]}"
sleep 8
node n3 --http "${http[n3]}" --gossip "127.0.0.1:$(port)" --peer "127.0.0.1:$(port)" --join "$seed"
if wait $looking; then ok "a node that is killed is seen failing, and coming back"; else not_ok "killed: $(head -c 3000 "$dir/killed")"; fi
shows "$dir/killed" 'measured, ≤' "what its death has cost is measured, beside what is promised"
if grep -q BROKEN "$dir/killed"; then not_ok "the promise is broken: $(cat "$dir/killed")"; else ok "it is no more than what is promised"; fi
shows "$dir/killed" 'took over|' "the heirs are named"
kill "${started[traffic]}"

# The node of the page is killed.
look "http://${http[n3]}/ui/" "wait=$filled" 'eval="is filled"' 'wait=!document.getElementById("leaving").hidden' 'eval=document.getElementById("leaving").textContent' \
	>"$dir/dead" 2>&1 &
looking=$!
until_true 40 grep -q "is filled" "$dir/dead" || true
kill -9 "${started[n3]}"
wait $looking || true
shows "$dir/dead" "does not answer any more" "the page of a node that is killed says so"
shows "$dir/dead" "${http[n1]}" "the page of a node that is killed says where to go on"
node n3 --http "${http[n3]}" --gossip "127.0.0.1:$(port)" --peer "127.0.0.1:$(port)" --join "$seed"

# The node of the page leaves.
if until_true 20 ready "${http[n3]}"; then ok "n3 is ready again"; else not_ok "n3 is not ready again"; fi
look "http://${http[n2]}/ui/" "wait=$filled" 'eval="is filled"' 'wait=!document.getElementById("leaving").hidden' 'eval=document.getElementById("leaving").textContent' \
	>"$dir/leaving" 2>&1 &
looking=$!
until_true 40 grep -q "is filled" "$dir/leaving" || true
kill "${started[n2]}"
wait $looking || true
shows "$dir/leaving" "${http[n1]}" "the page of a node that leaves says where to go on"

# Rights.
closed="http://${http[closed]}/ui/"
if look "$closed" 'wait=!document.getElementById("login").hidden && document.getElementById("summary").textContent.includes("authorization")' \
	'eval=document.querySelectorAll("tbody tr").length' >"$dir/closed" 2>&1; then
	expect 0 "$(cat "$dir/closed")" "without a token it shows nothing but what the node says"
else
	not_ok "closed: $(head -c 3000 "$dir/closed")"
fi
if look "$closed" 'eval=sessionStorage.setItem("token", "a-token-that-reads"), location.reload()' \
	'wait=document.querySelectorAll("#limits tr").length >= 5 && document.getElementById("login").hidden' >"$dir/closed" 2>&1; then
	ok "with the token of a client that may read it shows the cluster"
else
	not_ok "reader: $(head -c 3000 "$dir/closed")"
fi
for path in watch limits rules ring heavy top keys?prefix=a holds "key?limit=signup&key=alice"; do
	expect 403 "$(status "http://${http[closed]}/v1/cluster/$path" -H 'Authorization: Bearer a-token-that-checks')" "$path: a client that may only check sees nothing"
	expect 401 "$(status "http://${http[closed]}/v1/cluster/$path")" "$path: a stranger sees nothing"
done
# PICTURES=directory tests/page.sh keeps the pictures.
[ -z "${PICTURES:-}" ] || cp "$dir"/*.png "$PICTURES"
finish
