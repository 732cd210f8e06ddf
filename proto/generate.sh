#!/bin/sh
# Generates the Go code of every .proto file here, beside it. Run it after a change to a .proto file and commit what it
# writes. It needs protoc (Debian: protobuf-compiler) and takes the Go plugins from tools/go.mod, so their versions are
# fixed; protoc's own version shows in no generated file.
#
# With --check it generates into a temporary directory and fails if that differs from what is committed.
set -eu
cd "$(dirname "$0")"
out=.
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
if [ "${1:-}" = --check ]; then
	out=$bin/out
	mkdir "$out"
fi
command -v protoc >/dev/null || {
	echo "generate.sh: protoc is missing; install it (Debian: apt-get install protobuf-compiler)" >&2
	exit 127
}
(cd ../tools && go build -o "$bin/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc)
PATH=$bin:$PATH protoc -I . \
	--go_out="$out" --go_opt=paths=source_relative \
	--go-grpc_out="$out" --go-grpc_opt=paths=source_relative \
	$(find . -name '*.proto' | LC_ALL=C sort)
# The plugins write protoc's version into a comment: without it, any protoc gives the same bytes.
find "$out" -name '*.pb.go' -exec sed -i -E '/^\/\/ (\t|- )protoc +(v|\()/d' {} +
if [ "$out" != . ]; then
	failed=0
	for f in $(cd "$out" && find . -name '*.pb.go') $(find . -name '*.pb.go'); do
		diff -u "$f" "$out/$f" || failed=1
	done
	[ $failed = 0 ] || {
		echo "generate.sh: generated code is not that of the .proto files; run proto/generate.sh and commit" >&2
		exit 1
	}
fi
