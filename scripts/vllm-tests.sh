#!/usr/bin/env bash
# The plugin's own checks, and real servers with it: what `npm run test:vllm` runs after scripts/vllm-tools.sh. Arguments go to the tests of the
# servers, such as `-k counts`. Needs dist/ (npm run build) for the gateway.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${ELDR_VLLM:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/vllm}
export PATH="$environment/bin:$PATH"
(cd python && ruff check . ../test/vllm --config pyproject.toml && ruff format --check . ../test/vllm --config pyproject.toml && mypy)
(cd python && python -m pytest -p no:cacheprovider)
exec python -m pytest -p no:cacheprovider -x --durations=0 "$@" test/vllm
