#!/usr/bin/env bash
# Tries Dockerfile for real on a machine without a registry. It makes the image of the build stage from what is here:
# this machine's Go, a shell, and the modules that go.mod names, served from a folder. It leaves no image behind.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/report.sh
need docker docker.io
docker info >/dev/null 2>&1 || {
	echo "$0: no Docker engine answers; start it, or skip this" >&2
	exit 127
}

go_image=penstock-go-$$ image=penstock-try-image-$$ container=
root=$(mktemp -d)
clean() {
	[ -z "$container" ] || docker rm -f "$container" >/dev/null 2>&1 || true
	docker image rm -f "$image" "$go_image" >/dev/null 2>&1 || true
	# The engine's old builder keeps the build stage as an image without a name.
	docker image prune -f --filter "label=penstock.try=$$" >/dev/null 2>&1 || true
	chmod -R u+w "$root" && rm -rf "$root"
}
trap clean EXIT

mkdir -p "$root"/{bin,tmp,etc,usr/local/go}
shell=$(readlink -f /bin/sh)
for library in $(ldd "$shell" | grep -o '/[^ ]*'); do
	mkdir -p "$root$(dirname "$library")"
	cp -L "$library" "$root$library"
done
cp "$shell" "$root/bin/sh"
cp -L /bin/mkdir "$root/bin/"
goroot=$(go env GOROOT)
tar -C "$goroot" -c --exclude=src/cmd --exclude=testdata --exclude='*_test.go' bin pkg src lib VERSION go.env |
	tar -C "$root/usr/local/go" -x
# The modules as a proxy would serve them; GOFLAGS=-modcacherw lets them be removed again.
GOFLAGS=-modcacherw GOMODCACHE=$root/modules GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" go mod download
mkdir "$root/proxy"
mv "$root"/modules/cache/download/* "$root/proxy/"
chmod -R u+w "$root/modules" && rm -rf "$root/modules"
tar -C "$root" -c . | docker import \
	--change 'ENV PATH=/usr/local/go/bin:/bin GOPROXY=file:///proxy GOSUMDB=off GOTOOLCHAIN=local HOME=/tmp' \
	--change "LABEL penstock.try=$$" - "$go_image" >/dev/null
ok "a Go image without a registry"

if DOCKER_BUILDKIT=0 docker build --force-rm --build-arg "GO_IMAGE=$go_image" --build-arg VERSION=v0.0-try --label "penstock.try=$$" -t "$image" . >"$root/log" 2>&1; then
	ok "docker build"
else
	tail -n 40 "$root/log"
	not_ok "docker build"
	finish
fi
expect 65532:65532 "$(docker inspect -f '{{.Config.User}}' "$image")" "the image's user"
expect 1 "$(docker inspect -f '{{len .RootFS.Layers}}' "$image")" "layers: the binary and nothing else"
label() { docker inspect -f "{{index .Config.Labels \"org.opencontainers.image.$1\"}}" "$image"; }
expect "penstock v0.0-try Apache-2.0" "$(label title) $(label version) $(label licenses)" "its labels: title, version, licence"
bytes=$(docker image inspect -f '{{.Size}}' "$image")
expect true "$([ "$bytes" -le $((30 << 20)) ] && echo true || echo "$bytes bytes")" "the image has 30 MiB at most"
expect "penstock v0.0-try," "$(docker run --rm --network none "$image" --version | cut -d' ' -f1,2)" "the version that the image was built with"
container=$(docker run -d --network none --read-only --cap-drop ALL "$image")
healthy() { [ "$(docker inspect -f '{{.State.Health.Status}}' "$container")" = healthy ]; }
if until_true 30 healthy; then
	ok "alone and without flags it becomes healthy"
else
	docker logs "$container"
	not_ok "health after 30 s: $(docker inspect -f '{{.State.Health.Status}}' "$container")"
fi
finish
