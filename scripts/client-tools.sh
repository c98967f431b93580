#!/usr/bin/env bash
# Gets the clients that `npm run test:clients` tries, into .venv/clients. One that cannot be had is named; its tests are left out.
set -uo pipefail
cd "$(dirname "$0")/.."
environment=.venv/clients
command -v curl >/dev/null || echo "curl is not here" >&2
if ! [ -x $environment/bin/python ] && ! python3 -m venv $environment; then
  echo "no Python environment: its clients are left out" >&2
  exit 0
fi
for client in openai aiperf; do
  if ! $environment/bin/python -c "import $client" 2>/dev/null && ! $environment/bin/python -m pip install -q "$client"; then
    echo "$client for Python could not be installed" >&2
  fi
done
exit 0
