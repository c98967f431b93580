#!/usr/bin/env bash
# Installs the programs of `npm run test:ops` under ~/.cache/eldr/ops (ELDR_OPS), so that a second run
# downloads nothing. One function per suite of test/ops; arguments select suites (default: all).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
cache=${ELDR_OPS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/ops}

# Prometheus and promtool: those on the PATH, or Debian's package.
prometheus_tools() {
  if type -P prometheus >/dev/null && type -P promtool >/dev/null; then return; fi
  "$cache/prometheus/usr/bin/promtool" --version >/dev/null 2>&1 || unpack_package prometheus
}

# Longer ones are separate scripts.
api_tools() { bash scripts/api-tools.sh; }
dns_tools() { bash scripts/dns-tools.sh; }
store_tools() { bash scripts/store-tools.sh; }
deploy_tools() { bash scripts/deploy-tools.sh; }
netns_tools() { bash scripts/netns-tools.sh; }

tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(prometheus api dns store deploy netns)
for tool in "${tools[@]}"; do "${tool}_tools"; done
