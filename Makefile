# What one does here, by name. `make` alone lists it.
GO      ?= go
COMPOSE ?= docker-compose
IMAGE   ?= penstock
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
tool    := $(GO) tool -modfile=tools/go.mod

.PHONY: help build test race lint vulns format generate check soak fuzz mutants history chaos attack bench bench-docs bench-check benchmarks demo image compose release package reference module

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/penstock, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.stamped=$(VERSION)" -o bin/penstock ./cmd/node

test: ## all tests
	$(GO) test ./...

race: ## all tests with the race detector (needs a C compiler)
	$(GO) test -race -short ./...

CHECKS ?= 200000
soak: ## drawn tests with new seeds: 20 times what CI takes of the limiter's steps, and of all others; an hour or two
	$(GO) test -count=1 -timeout=0 ./limiter -run '^(TestTakeEqualsNaive|TestLongWalks)$$' \
		-rapid.checks=$(CHECKS) -walks=$$(($(CHECKS) * 8 / 10)) -walks.from=$$(date +%s)000000
	RAPID_CHECKS=$$(($(CHECKS) / 100)) $(GO) test -count=1 -timeout=0 \
		$$(grep -rl 'rapid\.Check(' --include='*_test.go' . | xargs -n1 dirname | sort -u)

fuzz: ## every fuzz target for T=10s, and a table of executions, of those a second, of new inputs and failures; ONLY=Redis
	@T=$(T) ONLY='$(ONLY)' WORKERS=$(WORKERS) bash .ci/fuzz.sh

ROOM ?=
N    ?= 0
SEED ?= 1
mutants: ## break the tree in small ways, and list what no test notices; ROOM=limiter N=40 SEED=2 for a part of it
	$(GO) run -C tools ./mutants -room '$(ROOM)' -n $(N) -seed $(SEED)

SECONDS ?= 60
history: ## real processes under faults of one node at a time, judged by what clients heard: SECONDS=60 SEED=…
	cd bench && $(GO) run ./history -seconds $(SECONDS) -seed $(SEED)

attack: ## hostile clients against a node, one kind after the other; fails beyond the bounds of memory
	cd bench && $(GO) run ./attack

chaos: ## the same with faults of two nodes at once; DISKS=1, PREVIOUS=v1.2.3, COPIES=2, ZONES=3, AGENTS=2
	cd bench && $(GO) run ./history -seconds $(SECONDS) -seed $(SEED) -chaos \
		$(if $(DISKS),-disks) $(if $(PREVIOUS),-previous $(PREVIOUS)) \
		$(if $(COPIES),-copies $(COPIES)) $(if $(ZONES),-zones $(ZONES)) $(if $(AGENTS),-agents $(AGENTS))

lint: ## vet, staticcheck, and whether the format is right
	$(GO) vet ./...
	$(tool) staticcheck ./...
	@bad=$$($(tool) gofumpt -l .) && test -z "$$bad" || { echo "not formatted: $$bad"; exit 1; }

vulns: ## known vulnerabilities in what is called of other modules, where their database can be reached
	$(tool) govulncheck ./...

format: ## format all sources
	$(tool) gofumpt -w .

reference: ## docs/configuration.md and the package's example, from the flags
	$(GO) test -count=1 ./cmd/node -run TestReference -update

generate: ## Go code of the .proto files (needs protoc)
	sh proto/generate.sh

check: ## everything that must hold before a change is accepted
	bash .ci/run

bench: ## penstock beside its rivals and the bare transport, on loopback: every row of bench/README.md, half an hour
	cd bench && $(GO) run . -o results

bench-docs: ## show the figures of the last make bench in docs/performance.md
	cd bench && $(GO) run . docs

bench-check: ## whether the hot paths allocate more than they did; CI runs it
	cd bench && $(GO) run . guard

benchmarks: ## Go benchmarks of all rooms
	$(GO) test -run '^$$' -bench . -benchmem ./limiter ./ring ./cluster ./rpc/... ./sim

demo: ## three nodes in one process, on the default ports
	$(GO) run ./cmd/node demo

MODULE ?=
module: ## publish the tree under another module path: MODULE=github.com/acme/penstock
	$(GO) run -C tools ./module -path '$(MODULE)'
	@command -v protoc >/dev/null && sh proto/generate.sh || \
		echo 'protoc is missing: the tree builds; run make generate where there is one'

image: ## container image, from a binary built here
	CGO_ENABLED=0 $(GO) build -trimpath -tags=grpcnotrace -ldflags "-s -w -X main.stamped=$(VERSION)" -o bin/penstock ./cmd/node
	docker build -f Dockerfile.prebuilt --build-arg VERSION='$(VERSION)' -t $(IMAGE) .

compose: image ## three containers; Ctrl-C stops them
	PENSTOCK_IMAGE=$(IMAGE) $(COMPOSE) up --no-build

release: ## dist/: static binaries for six systems, checksums, what is in them (SBOM), Debian packages; VERSION=v1.2.3
	$(GO) run -C tools ./release -version '$(VERSION)'
	$(MAKE) package

package: ## dist/: the Debian packages of the binaries that make release has made
	@tool=dist/penstock_$(VERSION)_$$($(GO) env GOHOSTOS)_$$($(GO) env GOHOSTARCH); \
	for arch in amd64 arm64; do \
		bash deploy/debian/build.sh dist/penstock_$(VERSION)_linux_$$arch '$(VERSION)' $$arch dist "$$tool" || exit; \
	done
	cd dist && { grep -v '\.deb$$' SHA256SUMS; sha256sum penstock_*.deb; } >sums && mv sums SHA256SUMS
