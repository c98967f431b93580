#!/usr/bin/env bash
# Sees to it that there is a Chromium for the browser tests: the one in $CHROMIUM or on the PATH, else Debian's package.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
need_packages "No Chromium found: install one and set CHROMIUM to its path." chromium
