#!/usr/bin/env bash
# A short history of real processes, for CI: kinds of faults whose promise holds, on four nodes. Each
# kind is a case. On a machine where no network namespace may be made the nodes are on loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./history -seconds "${SECONDS_OF_FAULTS:-25}" -seed "${SEED:-18}" -nodes 4 -rate 200 -patience 4 \
	-faults join,leave,restart,reload,kill
