#!/usr/bin/env bash
# Provides the tools of the network namespace tests: ip, Python 3, Redis or Valkey, and libfaketime, which is
# unpacked but not installed (LIBFAKETIME may point to another libfaketimeMT.so.1).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
PATH="$PATH:/usr/sbin:/sbin"
command -v ip >/dev/null || need_packages "No ip found: install iproute2." iproute2
command -v python3 >/dev/null || need_packages "No python3 found: install Python 3." python3
bash scripts/store-tools.sh
cache=${ELDR_OPS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/ops}
for library in "${LIBFAKETIME:-}" /usr/lib/*/faketime/libfaketimeMT.so.1 "$cache"/libfaketime/usr/lib/*/faketime/libfaketimeMT.so.1; do
  if [ -f "$library" ]; then exit 0; fi
done
unpack_package libfaketime
