#!/usr/bin/env bash
# Installs the API checkers of `npm run test:ops`, schemathesis and openapi-spec-validator, into a Python
# environment outside of the checkout (ELDR_API_TOOLS), so that a second run installs nothing.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
cd "$(dirname "$0")/.."
environment=${ELDR_API_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/api}
wanted=$(cksum <test/ops/api/requirements.txt)
[ "$(cat "$environment/wanted" 2>/dev/null)" = "$wanted" ] && exit 0

if ! python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  need_packages "Python 3.11 or later with venv is needed for these tests: install it." python3-venv
fi
rm -rf "$environment"
python3 -m venv "$environment"
# requirements.txt is generated from requirements.in: uv pip compile --universal --python-version 3.11
# --generate-hashes.
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r test/ops/api/requirements.txt
echo "$wanted" >"$environment/wanted"
