#!/bin/sh
# Makes what kustomization.yaml puts into the Secrets of this folder: the key of the gossip, and an
# authority with a certificate for each member and one for the agents. It needs openssl. A cluster that has cert-manager can
# issue the certificates instead; what counts are the names in them: *.penstock, by which members dial each other,
# penstock://node/NAME, which is the node of the certificate, and penstock://role/member or agent, what it is good for. An agent's
# certificate names all pods of its Deployment, and is refused where keys are owned.
#
#   sh make-keys.sh [FOLDER [NAME [MEMBERS [PODS]]]]     default: keys '*.penstock' 'penstock-0 penstock-1 penstock-2' 'shop-*'
set -eu
dir=${1:-keys} name=${2:-*.penstock} members=${3:-penstock-0 penstock-1 penstock-2} pods=${4:-shop-*}
[ ! -e "$dir" ] || { echo "make-keys.sh: $dir is there already; remove it to make new keys" >&2; exit 1; }
umask 077
mkdir "$dir"
openssl rand -base64 32 >"$dir/gossip.key"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 -subj /CN=penstock-ca \
	-keyout "$dir/ca.key" -out "$dir/ca.crt"
certificate() { # FILE NODE ROLE
	openssl req -x509 -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 365 \
		-subj /CN=penstock -addext "subjectAltName=DNS:$name,URI:penstock://node/$2,URI:penstock://role/$3" \
		-addext 'extendedKeyUsage=serverAuth,clientAuth' -addext 'basicConstraints=critical,CA:FALSE' \
		-keyout "$dir/$1.key" -out "$dir/$1.crt"
}
for member in $members; do certificate "$member" "$member" member; done
certificate agent "$pods" agent
# A program's token, for its container alone, and its rights, for its agent alone, which gets but the token's hash.
mkdir "$dir/shop"
openssl rand -hex 32 >"$dir/shop/token"
hash=$(tr -d '\n' <"$dir/shop/token" | openssl dgst -sha256 -r | cut -d' ' -f1)
cat >"$dir/shop/clients.yaml" <<END
clients:
  - {name: shop, sha256: $hash, check: {limits: [api, signup]}}
END
