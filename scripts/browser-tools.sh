#!/usr/bin/env bash
# Sees to it that there is a Chromium for the browser tests: the one in $CHROMIUM or on the PATH, else Debian's package.
set -euo pipefail
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
  echo "No Chromium found: install one and set CHROMIUM to its path." >&2
  exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null
