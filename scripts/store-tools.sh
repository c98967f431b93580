#!/usr/bin/env bash
# Sees to it that there is a Redis or Valkey for the tests of replicas: the one in $REDIS_SERVER or on the PATH, else Debian's.
set -euo pipefail
for name in "${REDIS_SERVER:-}" redis-server valkey-server; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
  echo "No redis-server found: install Redis or Valkey and set REDIS_SERVER to its path." >&2
  exit 1
fi
cache=${ELDR_OPS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/ops}
# The package redis-server would start a service. redis-tools has the same program: it goes by the name that it is called by.
if ! command -v redis-check-rdb >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-tools >/dev/null
fi
mkdir -p "$cache/store/usr/bin"
ln -sf "$(command -v redis-check-rdb)" "$cache/store/usr/bin/redis-server"
