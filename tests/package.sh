#!/usr/bin/env bash
# Makes the Debian package of what is here, and installs it in a copy of this system that is thrown
# away: an overlay over / in a mount namespace of its own. Needs root and dpkg.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != inside ]; then
	. .ci/report.sh
	need dpkg-deb dpkg
	root=$(mktemp -d)
	trap 'rm -rf "$root"' EXIT
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.stamped=v9.8.7' -o "$root/penstock" ./cmd/node
	architecture=$(dpkg --print-architecture)
	for n in one two; do
		bash deploy/debian/build.sh "$root/penstock" v9.8.7 "$architecture" "$root/$n" >/dev/null
	done
	deb=penstock_9.8.7-1_$architecture.deb
	expect "$(sha256sum <"$root/one/$deb")" "$(sha256sum <"$root/two/$deb")" "two packages of one binary are the same bytes"
	if command -v systemd-analyze >/dev/null; then
		exposure=$(systemd-analyze security --offline=true --threshold=20 deploy/debian/penstock.service 2>&1 | tail -1) || true
		case $exposure in *OK*) ok "the unit is hardened: $exposure" ;; *) not_ok "the unit is exposed: $exposure" ;; esac
	fi
	if command -v lintian >/dev/null; then
		# A static binary, as Go's are, has no shared libraries to protect, and names nobody as its maintainer.
		faults=$(lintian --no-tag-display-limit --suppress-tags \
			statically-linked-binary,bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs,maintainer-script-calls-systemctl \
			"$root/one/$deb" 2>&1 | grep '^[EW]:' || true)
		expect "" "$faults" "lintian finds no errors and no warnings"
	fi
	mkdir "$root/over"
	if ! unshare -m --pid --fork --mount-proc bash "$0" inside "$root" "$root/one/$deb" 2>"$root/log" >"$root/out"; then
		cat "$root/out" "$root/log"
		not_ok "the package in a system of its own"
	else
		cat "$root/out"
	fi
	cases=$((cases + $(grep -c '^\(not \)\?ok ' "$root/out" || true)))
	failures=$((failures + $(grep -c '^not ok ' "$root/out" || true)))
	finish
	exit
fi

# --- In the mount namespace. ---
root=$2 deb=$3
. .ci/report.sh
mount -t tmpfs tmpfs "$root/over"
mkdir "$root/over"/{upper,work,system}
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/over/upper,workdir=$root/over/work" "$root/over/system"
system=$root/over/system
mount -t tmpfs tmpfs "$system/run"
mount -t proc proc "$system/proc"
mount --bind /dev "$system/dev"
cp "$deb" "$system/run/penstock.deb"
at() { chroot "$system" "$@"; }

at dpkg -i /run/penstock.deb >/dev/null && ok "dpkg -i" || not_ok "dpkg -i"
expect "penstock v9.8.7," "$(at penstock version | cut -d' ' -f1-2)" "the binary is on the path, and says its version"
expect "penstock" "$(at id -un penstock)" "the user is there"
expect "root:penstock 750" "$(at stat -c '%U:%G %a' /etc/penstock)" "/etc/penstock is for root and the node alone"
at gzip -dc /usr/share/man/man1/penstock-serve.1.gz | grep -q 'peer\\-tls\\-cert' && ok "man pages" || not_ok "man pages"
expect "complete -F _penstock penstock" "$(tail -1 "$system/usr/share/bash-completion/completions/penstock")" "completion"

# As the unit does it: its directory, its user, its command.
at install -d -o penstock -g penstock -m 0700 /var/lib/penstock
command=$(sed -n 's/^ExecStart=//p' "$system/lib/systemd/system/penstock.service")
check=$(sed -n 's/^ExecStartPre=//p' "$system/lib/systemd/system/penstock.service")
as() { at setpriv --reuid penstock --regid penstock --clear-groups --no-new-privs "$@"; }
as $check >/dev/null && ok "the limits are valid" || not_ok "the limits are valid"
ip link set lo up 2>/dev/null || true
PENSTOCK_GOSSIP=off PENSTOCK_PEER=off PENSTOCK_REDIS=off PENSTOCK_GRPC=unix:///run/p/g PENSTOCK_HTTP=unix:///run/p/h
export PENSTOCK_GOSSIP PENSTOCK_PEER PENSTOCK_REDIS PENSTOCK_GRPC PENSTOCK_HTTP
at install -d -o penstock -g penstock /run/p
chroot "$system" setpriv --reuid penstock --regid penstock --clear-groups --no-new-privs $command 2>"$root/over/log" &
node=$!
until_true 10 as penstock healthcheck --http unix:///run/p/h && ok "the unit's command runs as that user" || not_ok "not ready: $(cat "$root/over/log")"
cat >"$system/etc/penstock/limits/limits.yaml" <<'LIMITS'
limits: [{name: mine, algorithm: gcra, limit: 5, per: 1m}]
LIMITS
chmod 0644 "$system/etc/penstock/limits/limits.yaml"
until_true 10 as penstock check mine k --addr unix:///run/p/g && ok "limits are read when they change" || not_ok "limits are not read: $(tail -3 "$root/over/log")"
kill "$node" # chroot has become setpriv, and that the node
code=0
wait "$node" || code=$?
expect 0 "$code" "SIGTERM ends it with exit code 0"
[ -n "$(ls "$system/var/lib/penstock")" ] && ok "the counters are in /var/lib/penstock" || not_ok "/var/lib/penstock is empty"

# An update keeps what the operator changed.
at dpkg -i /run/penstock.deb >/dev/null 2>&1
grep -q mine "$system/etc/penstock/limits/limits.yaml" && ok "an update keeps the limits" || not_ok "an update has replaced the limits"
at dpkg -r penstock >/dev/null 2>&1
[ -e "$system/etc/penstock/penstock.yaml" ] && [ ! -e "$system/usr/bin/penstock" ] && ok "dpkg -r keeps the configuration" || not_ok "dpkg -r"
at dpkg -P penstock >/dev/null 2>&1
[ ! -e "$system/etc/penstock" ] && [ ! -e "$system/var/lib/penstock" ] && ok "dpkg -P leaves nothing" || not_ok "dpkg -P leaves $(ls -d "$system"/etc/penstock "$system"/var/lib/penstock 2>/dev/null)"
