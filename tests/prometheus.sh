#!/usr/bin/env bash
# Has a real Prometheus scrape a real cluster of three nodes: the rules pass promtool and its unit tests, each metric of the
# dashboard and of the alerts exists on a live node, and alerts fire when a node is killed.
set -euo pipefail
cd "$(dirname "$0")/../deploy"
. ../.ci/report.sh
. ../.ci/processes.sh
need prometheus prometheus
need promtool prometheus
need curl curl
need jq jq
need go golang

if promtool check rules alerts/penstock.yml; then ok "promtool accepts the rules"; else not_ok "promtool refuses the rules"; fi
if promtool test rules alerts/penstock_test.yml; then ok "the unit tests of the rules pass"; else not_ok "the unit tests of the rules fail"; fi
for alert in $(sed -n 's/.*- alert: //p' alerts/penstock.yml); do
	if grep -q "alertname: $alert\$" alerts/penstock_test.yml && grep -q "^## $alert\$" ../docs/runbook.md; then
		ok "$alert has a unit test and a place in the runbook"
	else
		not_ok "$alert lacks a unit test, or a place in docs/runbook.md"
	fi
done

(cd .. && go build -o "$dir/penstock" ./cmd/node)
"$dir/penstock" certs init --dir "$dir/certs" 2>/dev/null >/dev/null
seed= targets=()
for name in a b c; do
	http=127.0.0.1:$(port) gossip=127.0.0.1:$(port) peer=127.0.0.1:$(port)
	"$dir/penstock" certs add "$name" --role member --dir "$dir/certs" >/dev/null 2>&1
	run "$name" "$dir/penstock" serve --name "$name" --limits limits --gossip "$gossip" --peer "$peer" --redis off --grpc off --http "$http" \
		--peer-tls-cert "$dir/certs/$name.crt" --peer-tls-key "$dir/certs/$name.key" --peer-tls-ca "$dir/certs/ca.crt" \
		${seed:+--join "$seed"}
	seed=${seed:-$gossip}
	targets+=("$http")
done
all_active() {
	local t
	for t in "${targets[@]}"; do
		curl -s --max-time 5 "http://$t/metrics" | grep -q '^penstock_members{state="active"} 3$' || return 1
	done
}
if until_true 60 all_active; then ok "three nodes are a cluster"; else not_ok "three nodes are no cluster after 60 s: $(tail -n 3 "$dir"/*.log)"; fi
for i in $(seq 30); do
	curl -s -o /dev/null "http://${targets[0]}/v1/check?limit=signup&key=user$i"
done

web=127.0.0.1:$(port)
# The rules wait for minutes; those of this trial wait for two seconds.
sed 's/for: [0-9]*[sm]/for: 2s/' alerts/penstock.yml >"$dir/rules.yml"
cat >"$dir/prometheus.yml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: penstock
    static_configs: [{targets: ["${targets[0]}", "${targets[1]}", "${targets[2]}"]}]
END
run prometheus prometheus --config.file "$dir/prometheus.yml" --storage.tsdb.path "$dir/data" --web.listen-address "$web" --log.level=error
query() { curl -s -G --max-time 5 --data-urlencode "query=$1" "http://$web/api/v1/query"; }
scraped() { [ "$(query 'sum(up)' | jq -r '.data.result[0].value[1]')" = 3 ]; }
if until_true 30 scraped; then ok "Prometheus scrapes all three"; else not_ok "Prometheus does not scrape: $(cat "$dir/prometheus.log")"; fi

has_series() { query "count($1) or count(${1}_bucket)" | jq -e '.data.result | length > 0'; }
# Each metric that the dashboard or an alert names.
metrics=$(grep -oh 'penstock_[a-z_]*' grafana/penstock.json alerts/penstock.yml | sort -u)
for metric in $metrics; do
	if until_true 10 has_series "$metric"; then ok "$metric exists"; else not_ok "no node has $metric"; fi
done
# Each question of the dashboard is one that Prometheus understands.
while read -r expr; do
	expr=${expr//\$__rate_interval/1m}
	expect success "$(query "$expr" | jq -r .status)" "the dashboard asks: $expr"
done < <(jq -r '.panels[].targets[]?.expr' grafana/penstock.json)

firing() { curl -s --max-time 5 "http://$web/api/v1/alerts" | jq -e --arg a "$1" 'any(.data.alerts[]; .labels.alertname == $a and .state == "firing")'; }
for alert in PenstockNodeDown PenstockMemberFailed; do
	if firing $alert >/dev/null; then not_ok "$alert fires without a reason"; else ok "$alert is silent while all nodes live"; fi
done
kill -9 "${started[c]}"
for alert in PenstockNodeDown PenstockMemberFailed; do
	if until_true 60 firing $alert; then ok "$alert fires when a node is killed"; else not_ok "$alert does not fire 60 s after a node was killed"; fi
done
warned() { grep -q '"level":"WARN".*a member has failed.*"member":"c"' "$dir/a.log"; } # gossip is slower
if until_true 10 warned; then ok "the log of another node warns of it"; else not_ok "no warning in the log of a node: $(tail -n 5 "$dir/a.log")"; fi
finish
