#!/usr/bin/env bash
# Sees to it that there is a DNS server for the tests of discovery: dnsmasq in $DNSMASQ or on the PATH, else Debian's package.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
PATH="$PATH:/usr/sbin:/sbin"
for name in "${DNSMASQ:-}" dnsmasq; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
# The program alone: the package dnsmasq would start a service on port 53.
need_packages "No dnsmasq found: install it and set DNSMASQ to its path." dnsmasq-base
