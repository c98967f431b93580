#!/usr/bin/env bash
# Provides Chromium for the browser tests: $CHROMIUM, the one on the PATH, or Debian's package.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
need_packages "No Chromium found: install one and set CHROMIUM to its path." chromium
