#!/usr/bin/env bash
# Installs the clients of `npm run test:clients`: curl, and openai and aiperf in a Python environment outside
# of the checkout (ELDR_CLIENTS), so that a second run installs nothing.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
cd "$(dirname "$0")/.."
environment=${ELDR_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/clients}
wanted=$(cksum <test/clients/requirements.txt)
[ "$(cat "$environment/wanted" 2>/dev/null)" = "$wanted" ] && command -v curl >/dev/null && exit 0

if ! command -v curl >/dev/null || ! python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  need_packages "curl and Python 3.10 or later with venv are needed for these tests: install them." curl python3-venv
fi
rm -rf "$environment"
python3 -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r test/clients/requirements.txt
echo "$wanted" >"$environment/wanted"
