#!/bin/sh
# Makes what kustomization.yaml puts into the Secret penstock-keys: the key of the gossip, and an authority with one
# certificate, which all nodes show to each other. It needs openssl. A cluster that has cert-manager can issue the
# certificates instead; what counts is the name *.penstock, by which members dial each other.
#
#   sh make-keys.sh [FOLDER [NAME]]     default: keys '*.penstock'
set -eu
dir=${1:-keys} name=${2:-*.penstock}
[ ! -e "$dir" ] || { echo "make-keys.sh: $dir is there already; remove it to make new keys" >&2; exit 1; }
umask 077
mkdir "$dir"
openssl rand -base64 32 >"$dir/gossip.key"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 -subj /CN=penstock-ca \
	-keyout "$dir/ca.key" -out "$dir/ca.crt"
openssl req -x509 -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 365 \
	-subj /CN=penstock -addext "subjectAltName=DNS:$name" -addext 'extendedKeyUsage=serverAuth,clientAuth' \
	-addext 'basicConstraints=critical,CA:FALSE' -keyout "$dir/peer.key" -out "$dir/peer.crt"
