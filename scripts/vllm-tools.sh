#!/usr/bin/env bash
# Creates the environment of `npm run test:vllm`: vLLM's CPU build, NIXL and this repository's plugin, pinned,
# about 6 GB, outside of the checkout (ELDR_VLLM), so that a second run installs nothing. Needs Python 3.11 to
# 3.13; downloads uv if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/eldr
environment=${ELDR_VLLM:-$cache/vllm}
wanted=$(cat test/vllm/requirements.txt test/vllm/overrides.txt | cksum)
here=$(cksum <<<"$PWD" | cut -d' ' -f1)

if [ "$(cat "$environment/wanted" 2>/dev/null)" != "$wanted" ]; then
  python=""
  for name in ${ELDR_PYTHON:-} python3.12 python3.13 python3.11 python3; do
    if "$name" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then python=$name && break; fi
  done
  if [ -z "$python" ]; then
    echo "These tests need Python 3.11 to 3.13 with venv: install one, or set ELDR_PYTHON." >&2
    exit 1
  fi
  uv=$(command -v uv || true)
  if [ -z "$uv" ]; then
    "$python" -m venv "$cache/uv"
    "$cache/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.13.7
    uv=$cache/uv/bin/uv
  fi
  rm -rf "$environment"
  "$uv" venv --quiet --no-python-downloads --python "$python" "$environment"
  UV_LINK_MODE=${UV_LINK_MODE:-copy} "$uv" pip install --quiet --compile-bytecode --python "$environment/bin/python" \
    --override test/vllm/overrides.txt -r test/vllm/requirements.txt
  echo "$wanted" >"$environment/wanted"
fi
# The plugin is used from this checkout (editable install).
if [ "$(cat "$environment/plugin" 2>/dev/null)" != "$here $(cksum <python/pyproject.toml)" ]; then
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e python
  echo "$here $(cksum <python/pyproject.toml)" >"$environment/plugin"
fi
