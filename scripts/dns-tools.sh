#!/usr/bin/env bash
# Sees to it that there is a DNS server for the tests of discovery: dnsmasq in $DNSMASQ or on the PATH, else Debian's package.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
for name in "${DNSMASQ:-}" dnsmasq; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
  echo "No dnsmasq found: install it and set DNSMASQ to its path." >&2
  exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
$sudo apt-get update -qq
# The program alone: the package dnsmasq would start a service on port 53.
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq dnsmasq-base >/dev/null
