#!/usr/bin/env bash
# Gets the programs that `npm run test:ops` runs, under ~/.cache/eldr/ops (ELDR_OPS says where), so that a second run fetches nothing.
# A function for each suite of test/ops; those that are named on the command line are fetched, or all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
cache=${ELDR_OPS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/ops}

# Prometheus and promtool: those on the PATH, else Debian's package.
prometheus_tools() {
  if type -P prometheus >/dev/null && type -P promtool >/dev/null; then return; fi
  "$cache/prometheus/usr/bin/promtool" --version >/dev/null 2>&1 || unpack_package prometheus
}

# Those that need more than a few lines have a script of their own.
api_tools() { bash scripts/api-tools.sh; }
dns_tools() { bash scripts/dns-tools.sh; }
store_tools() { bash scripts/store-tools.sh; }
deploy_tools() { bash scripts/deploy-tools.sh; }
netns_tools() { bash scripts/netns-tools.sh; }

tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(prometheus api dns store deploy netns)
for tool in "${tools[@]}"; do "${tool}_tools"; done
