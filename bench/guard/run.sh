#!/usr/bin/env bash
# Whether the hot paths allocate more than they did: a line for each figure. `make bench-check` does the same.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run . guard
