"""Runs `vllm bench serve` repeatedly in one process, because its imports take twenty seconds. Reads arguments as a JSON list per line, and
writes a line when that run has ended. Does not use vLLM's own command, which needs a package named `vllm`: the CPU build has another
name."""

from __future__ import annotations

import json
import sys

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

for line in sys.stdin:
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args(json.loads(line)))
    print("\nended", flush=True)
