"""The kernels are compiled for an H200, which needs no GPU: Triton's interpreter accepts more than its
compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

# In a process of its own, because the other tests interpret the kernels.
PROGRAM = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from eldr_vllm import distinct_kernel, scatter_kernel, sum_kernel

def compiled(kernel, types, constants):
    signature = {name: types.get(name, "constexpr" if name in constants else "i32") for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return len(made.asm["cubin"])

sizes = {}
for recent in (True, False):
    types = dict(ids="*u8", known="*u8", weights="*i64", host="*i32", totals="*i32", recent_totals="*i64", covered_totals="*i32",
                 arrived="*i32")
    constants = dict(SIZE=16, TOP_K=8, K=8, BINS=256, TOKENS=128, RECENT=recent, SHIFT=32)
    sizes[f"sum {recent}"] = compiled(sum_kernel._sum_slots, types, constants)
    types = dict(ids="*i32", slots="*i64", out="*i32")
    constants = dict(TOP_K=8, K=8, BINS=256, TOKENS=64, PADDING=recent)
    sizes[f"distinct {recent}"] = compiled(distinct_kernel._distinct, types, constants)
types = dict(ids="*i32", slots="*i64", store="*u8", known="*u8")
sizes["scatter"] = compiled(scatter_kernel._scatter_slots, types, dict(TOP_K=8, TOKENS=8, CELLS=512))
sizes["clear known"] = compiled(scatter_kernel._clear_known, dict(blocks="*i32", known="*u8"), dict(SIZE=16, WIDTH=16))
print(json.dumps(sizes))
"""


def test_all_kernels_compile_for_an_h200() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False)
    if "ptxas" in done.stderr and "FileNotFoundError" in done.stderr:
        pytest.skip("this build of Triton has no assembler")
    assert done.returncode == 0, done.stderr
    sizes = json.loads(done.stdout.splitlines()[-1])
    assert len(sizes) == 6
    assert min(sizes.values()) > 0
