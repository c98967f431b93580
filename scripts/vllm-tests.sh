#!/usr/bin/env bash
# Tests of the plugin, alone and in real servers; `npm run test:vllm` runs this after scripts/vllm-tools.sh.
# Arguments such as `-k counts` select server tests. Needs dist/ (npm run build) for the gateway.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${ELDR_VLLM:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/vllm}
export PATH="$environment/bin:$PATH"
servers() { python -m pytest -p no:cacheprovider -x --durations=0 "$@"; }

if [ $# -gt 0 ]; then
  servers "$@" test/vllm
  exit
fi
# Two lanes in parallel: each mostly waits for imports and steps, which use one core.
lane=$(mktemp)
single() {
  (
    cd python
    checked=(. ../test/vllm ../bench/gpu/serving)
    ruff check "${checked[@]}" --config pyproject.toml
    ruff format --check "${checked[@]}" --config pyproject.toml
    mypy
    cd ../bench/gpu/serving
    mypy --config-file mypy.ini
  )
  (cd python && python -m pytest -p no:cacheprovider)
  python -m pytest -q -p no:cacheprovider bench/gpu/serving/tests
  servers test/vllm --ignore=test/vllm/cluster
}
set -m # a process group of its own, so that it can be stopped whole
(
  set -e
  single
) >"$lane" 2>&1 &
other=$!
set +m
trap 'kill -- -$other 2>/dev/null || true; wait $other 2>/dev/null || true; rm -f "$lane"' EXIT
status=0
servers test/vllm/cluster --ignore=test/vllm/cluster/test_bench.py || status=$?
wait $other || status=$?
echo "== the plugin and single servers"
cat "$lane"
[ $status = 0 ] || exit $status
# Runs alone, because it compares times.
servers test/vllm/cluster/test_bench.py
# Every step of the GPU experiments, with tiny loads on this CPU build.
stage=$(mktemp -d)
python bench/gpu/serving/run.py --stage "$stage" dry --out "$stage/out"
rm -rf "$stage"
