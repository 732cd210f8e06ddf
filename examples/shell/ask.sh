#!/bin/sh
# Asks a Penstock node, and exits with 0 if the job may run, 2 if not: sh ask.sh LIMIT KEY && job
# A node that does not answer within a second admits the job.
set -eu
node=${PENSTOCK:-127.0.0.1:7949}
status=$(curl -s -o /dev/null -w '%{http_code}' --max-time 1 -G "http://$node/v1/check" \
	--data-urlencode "limit=$1" --data-urlencode "key=$2") || status=000
case $status in
200) echo allowed ;;
000) echo "allowed: no answer from $node" ;;
429) echo denied; exit 2 ;;
*) echo "Penstock answers $status" >&2; exit 1 ;;
esac
