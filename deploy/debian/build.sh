#!/usr/bin/env bash
# Makes the Debian package of a binary for Linux:
#
#   deploy/debian/build.sh BINARY VERSION ARCHITECTURE OUT [TOOL]
#
# ARCHITECTURE is amd64 or arm64. TOOL is a penstock of the same version that runs here, for the man
# pages and the completions; without it, BINARY is. The same input makes the same bytes.
set -euo pipefail
[ $# = 4 ] || [ $# = 5 ] || {
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
binary=$1 architecture=$3 out=$4 tool=$(realpath "${5:-$1}")
here=$(cd "$(dirname "$0")" && pwd)
# A version of Debian begins with a digit, and has no other letters than these.
version=$(printf '%s' "${2#v}" | tr -c 'A-Za-z0-9.+~-' .)
case $version in [0-9]*) ;; *) version=0~$version ;; esac
version=$version-1
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 0)}

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
put() { install -D -m "$1" "$2" "$tree$3"; }
put 0755 "$binary" /usr/bin/penstock
put 0644 "$here/penstock.service" /lib/systemd/system/penstock.service
put 0644 "$here/penstock.yaml" /etc/penstock/penstock.yaml
put 0644 "$here/limits.yaml" /etc/penstock/limits/limits.yaml
put 0644 "$here/copyright" /usr/share/doc/penstock/copyright
mkdir -p "$tree"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$tool" completion bash >"$tree/usr/share/bash-completion/completions/penstock"
"$tool" completion zsh >"$tree/usr/share/zsh/vendor-completions/_penstock"
"$tool" completion fish >"$tree/usr/share/fish/vendor_completions.d/penstock.fish"
"$tool" man "$tree/usr/share/man/man1" >/dev/null
gzip -9n "$tree"/usr/share/man/man1/*.1
printf 'penstock (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of this version.\n\n -- Penstock <penstock@localhost>  %s\n' \
	"$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$tree/usr/share/doc/penstock/changelog.Debian.gz"

mkdir "$tree/DEBIAN"
for script in postinst prerm postrm; do
	install -m 0755 "$here/$script" "$tree/DEBIAN/$script"
done
(cd "$tree" && find etc -type f | sed 's|^|/|' | sort) >"$tree/DEBIAN/conffiles"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: penstock
Version: $version
Architecture: $architecture
Maintainer: Penstock <penstock@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Depends: adduser
Section: net
Priority: optional
Description: rate limiter of many nodes without a central store
 Nodes share the keys among themselves: each key has one owner, which decides
 from memory. Clients ask any node over gRPC, HTTP, the Redis protocol, or as
 Envoy and Gubernator do. A node that fails is replaced by the one that has the
 copies of its counters.
CONTROL
(cd "$tree" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
chmod -R u=rwX,go=rX "$tree"
mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/penstock_${version}_$architecture.deb"
