"""Compares the kernels with plain torch: a whole step and a prefill of a tiny model of each shape, operation by operation, on fresh data.

    TRITON_INTERPRET=1 python3 check.py --device cpu     # the kernels in Triton's interpreter, no GPU

step_profile.py runs the same check on the GPU before it times anything."""

import argparse
from types import ModuleType

import torch
from torch import Tensor

import ops_torch
from model import Model
from shapes import SHAPES, Shape, tiny

SAME_CALLS = ("norm", "add_norm", "norm_sum", "rope_cache", "paged_attention", "prefill_attention", "grouped", "activate", "combine")
LIMIT = 2e-2  # bf16 operands and a bf16 result: 1e-3 to 1e-2


def distance(out: Tensor, ref: Tensor) -> float:
    if not torch.isfinite(out.float()).all():
        return float("inf")
    return float((out.double() - ref.double()).norm() / ref.double().norm().clamp_min(1e-12))


class Checked(ModuleType):
    """Runs every operation both ways on the same inputs, keeps the largest distance of each, and goes on with the reference."""

    def __init__(self, fast: ModuleType):
        super().__init__("checked")
        self.worst: dict[str, float] = {}
        for name in SAME_CALLS:
            setattr(self, name, self._both(name, getattr(fast, name), getattr(ops_torch, name)))
        self._fast = fast

    def _note(self, name: str, out: Tensor, ref: Tensor) -> None:
        self.worst[name] = max(self.worst.get(name, 0.0), distance(out, ref))

    def _both(self, name: str, fast, slow):  # noqa: ANN001, ANN202
        def call(*args):  # noqa: ANN002, ANN202
            mine = [a.clone() if isinstance(a, Tensor) else a for a in args]
            out, ref = fast(*mine), slow(*args)
            for o, r in zip(out if isinstance(out, tuple) else (out,), ref if isinstance(ref, tuple) else (ref,), strict=True):
                if r is not None:
                    self._note(name, o, r)
            for a, b in zip(mine, args, strict=True):  # what was written in place: residuals and caches
                if isinstance(a, Tensor):
                    self._note(name, a, b)
            return ref

        return call

    def route(self, logits: Tensor, given: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        mine = counts.clone()
        weights, rank = self._fast.route(logits, given, mine)
        ref_weights, ref_rank = ops_torch.route(logits, given, counts)
        self._note("route", weights, ref_weights)
        self._note("route", mine, counts)
        # ranks come in any order, but each expert's must be 0, 1, 2, …
        key = given.flatten().long() * given.numel()
        self._note("route", (key + rank.flatten()).sort().values, (key + ref_rank.flatten()).sort().values)
        return ref_weights, ref_rank

    def gather(self, x: Tensor, given: Tensor, rank: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        out, ref = self._fast.gather(x, given, rank, counts), ops_torch.gather(x, given, rank, counts)
        for o, r in zip(out, ref, strict=True):
            self._note("gather", o, r)
        return ref


def check(shape: Shape, fast: ModuleType, device: torch.device, batch: int = 6) -> dict[str, float]:
    """The largest relative distance of every operation."""
    ops = Checked(fast)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32  # the interpreter's dot takes bf16 for integers
    model = Model(shape, ops, device, max_batch=batch, max_context=96, min_tokens=64, kv_gib=1.0, expert_gib=1.0, dtype=dtype)
    x = model.decode_inputs(batch)
    model.set_contexts(x, [(7 + 17 * i) % 96 + 1 for i in range(batch)])
    model.set_active(x, min(shape.experts, batch * shape.top_k) - 1)
    model.step(x)
    p = model.prefill_inputs(50)
    model.set_active(p, shape.experts)
    model.step(p, prefill=True)
    return ops.worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    import ops_triton

    bad = False
    for shape in SHAPES.values():
        worst = check(tiny(shape), ops_triton, torch.device(args.device))
        print(shape.name, {k: f"{v:.1e}" for k, v in sorted(worst.items())})
        bad |= max(worst.values()) > LIMIT
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
