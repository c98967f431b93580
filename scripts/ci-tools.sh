#!/usr/bin/env bash
# Installs the tools of all suites in the background while tests that need none run. A suite whose tools are
# missing installs them itself and reports what went wrong.
cd "$(dirname "$0")/.."
for tools in ops browser client vllm; do
  bash "scripts/$tools-tools.sh"
done
