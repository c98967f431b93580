#!/usr/bin/env bash
# Gets the programs that `npm run test:ops` runs, under ~/.cache/eldr/ops (ELDR_OPS says where), so that a second run fetches nothing.
# A function for each suite of test/ops; those that are named on the command line are fetched, or all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${ELDR_OPS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/ops}

# Fetches a Debian package and unpacks it under $cache/NAME, without installing it: needs no root unless package lists have to be fetched.
unpack_package() {
  local name=$1 folder=$cache/$1 fresh
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "No $name found, and no apt-get to fetch it with: install it, so that it is on the PATH." >&2
    return 1
  fi
  mkdir -p "$cache"
  fresh=$(mktemp -d "$cache/$name.XXXXXX")
  if ! (cd "$fresh" && apt-get download -qq "$name" >/dev/null 2>&1); then
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo"
    $sudo apt-get update -qq
    (cd "$fresh" && apt-get download -qq "$name")
  fi
  dpkg-deb -x "$fresh"/*.deb "$fresh"
  rm -rf "$fresh"/*.deb "$folder"
  mv "$fresh" "$folder"
}

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

tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(prometheus api dns store deploy)
for tool in "${tools[@]}"; do "${tool}_tools"; done
