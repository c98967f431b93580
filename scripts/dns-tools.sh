#!/usr/bin/env bash
# Provides a DNS server for the discovery tests: dnsmasq in $DNSMASQ, on the PATH, or Debian's package.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
PATH="$PATH:/usr/sbin:/sbin"
for name in "${DNSMASQ:-}" dnsmasq; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
# Only the program: the package dnsmasq would start a service on port 53.
need_packages "No dnsmasq found: install it and set DNSMASQ to its path." dnsmasq-base
