#!/usr/bin/env bash
# Provides Redis or Valkey for the replica tests: $REDIS_SERVER, the one on the PATH, or Debian's.
set -euo pipefail
for name in "${REDIS_SERVER:-}" redis-server valkey-server; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
  echo "No redis-server found: install Redis or Valkey and set REDIS_SERVER to its path." >&2
  exit 1
fi
cache=${ELDR_OPS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/ops}
# The package redis-server would start a service. redis-tools contains the same program, which behaves
# according to its name.
if ! command -v redis-check-rdb >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-tools >/dev/null
fi
mkdir -p "$cache/store/usr/bin"
ln -sf "$(command -v redis-check-rdb)" "$cache/store/usr/bin/redis-server"
