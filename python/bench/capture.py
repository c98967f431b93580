"""Measures the parts of capture on a GPU with plain torch, without vLLM, at two shapes: tiny6 (6 layers, 64
experts) and Qwen3-30B-A3B (48 layers, 128 experts), both top 8. First checks the timed code on the device:
eager, as one CUDA graph, and as one graph per layer, with the kernels and with plain operations (checks.py).

python python/bench/capture.py --json FILE [--markdown FILE]      # about two minutes
python python/bench/capture.py --device cpu                       # a rehearsal: everything once, in Triton's interpreter

"device" is GPU time, measured by events around work that was queued during a pause, so that it includes no
launch delay; any call that waits for the device fails the run (torch.cuda.set_sync_debug_mode). "host" is the
time that Python needs, which delays a step only while the GPU has nothing to do. All values are medians in
milliseconds. Results are written after each shape."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
if "cpu" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read where a kernel is decorated

import torch
from checks import check_all
from clock import Clock
from parts import Case, basics, cases, measured
from table import markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=400, help="start no further case after this time (default: 400)")
    options = parser.parse_args()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {text}", flush=True)

    check_all(options.device)
    say("results are equal to NumPy's")
    clock = Clock(options.device)
    rows = basics(clock)
    about = {"device": clock.name, "torch": torch.__version__, "python": platform.python_version(), "repeats": clock.repeats}
    for case in cases():
        if time.monotonic() - began > options.seconds:
            say(f"out of time, left out: {case}")
            continue
        rows += measured(shrunk(case) if options.device == "cpu" else case, clock)
        say(str(case))
        if options.json:
            options.json.write_text(json.dumps(about | {"rows": rows}, indent=1), encoding="utf-8")
    text = markdown(about | {"rows": rows})
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")


def shrunk(case: Case) -> Case:
    return replace(case, layers=min(3, case.layers), experts=min(16, case.experts), top_k=2, steps=(128,), blocks=40)


if __name__ == "__main__":
    main()
