#!/usr/bin/env bash
# Gets the tools of all suites ahead, beside the tests that need none: most of it is waiting for downloads. A suite whose tools could not be
# had gets them again itself, and then says what went wrong.
cd "$(dirname "$0")/.."
for tools in ops browser client vllm; do
  bash "scripts/$tools-tools.sh"
done
