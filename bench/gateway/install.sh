#!/usr/bin/env bash
# Installs what the gateway is compared with into bench/gateway/.venv: vllm-router from PyPI, and nginx from Debian's package if apt
# exists and nginx is not installed. Needs no root; delete the folder to uninstall.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
if ! command -v nginx >/dev/null && command -v apt-get dpkg-deb >/dev/null; then
  mkdir -p .venv/debian
  if (cd .venv/debian && apt-get download nginx >/dev/null 2>&1); then
    dpkg-deb -x .venv/debian/nginx_*.deb .venv/debian
  else
    echo 'nginx is left out: apt-get download nginx failed' >&2
  fi
fi
