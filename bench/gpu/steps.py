"""Recorded decode steps, to check the fitted profile against the time of real steps.

Two forms of file:
- JSON: a list of steps {"context_tokens": c, "experts": [layer][request][k]}. c is a list with one figure a request, or one figure for the
  whole batch, which is then split evenly. A layer's experts may also be one flat list of request·k ids. "batch" is checked when given.
- .npz: `batch` int [S], `context` int [ΣB] and `experts` int [ΣB, layers, k], requests of all steps one after the other.

Layer l of a shape takes the trace's layer ⌊l·L_trace/L⌋. Where the shape's top-k is smaller than the trace's
the first ids of each token are taken; a larger one is refused."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shapes import Shape


@dataclass(frozen=True)
class Step:
    contexts: list[int]
    experts: np.ndarray  # [layers of the trace, B, k]

    @property
    def batch(self) -> int:
        return len(self.contexts)


def _even(total: int, parts: int) -> list[int]:
    return [max(1, total * (i + 1) // parts - total * i // parts) for i in range(parts)]


def _from_json(i: int, raw: dict[str, Any], top_k: int | None) -> Step:
    layers = raw["experts"]
    context = raw["context_tokens"]
    batch = raw.get("batch") or (len(context) if isinstance(context, list) else len(layers[0]))
    k = raw.get("top_k") or top_k
    ids = [np.asarray(layer, dtype=np.int64) for layer in layers]
    if any(a.ndim == 1 for a in ids):
        ids = [a.reshape(batch, k or -1) for a in ids]
    experts = np.stack(ids)
    contexts = [max(1, int(c)) for c in context] if isinstance(context, list) else _even(int(context), batch)
    if experts.shape[1] != batch or len(contexts) != batch:
        raise ValueError(f"step {i}: batch {batch}, but experts of {experts.shape[1]} requests and {len(contexts)} contexts")
    return Step(contexts, experts)


def load(path: Path) -> list[Step]:
    if path.suffix == ".npz":
        z = np.load(path)
        ends = np.cumsum(z["batch"])
        if ends[-1] != len(z["context"]) or ends[-1] != len(z["experts"]):
            found = f"{len(z['context'])} contexts and {len(z['experts'])} rows of experts"
            raise ValueError(f"{path}: batches add up to {ends[-1]}, but there are {found}")
        return [
            Step([max(1, int(c)) for c in z["context"][a:b]], z["experts"][a:b].astype(np.int64).transpose(1, 0, 2))
            for a, b in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)
        ]
    raw = json.loads(path.read_text())
    top_k = raw.get("top_k") if isinstance(raw, dict) else None
    return [_from_json(i, s, top_k) for i, s in enumerate(raw["steps"] if isinstance(raw, dict) else raw)]


def experts_of(shape: Shape, step: Step) -> np.ndarray:
    """The step's expert ids for the shape's layers, [L, B, k]."""
    traced, _, k = step.experts.shape
    if k < shape.top_k:
        raise ValueError(f"the steps have top-{k}; {shape.name} needs {shape.top_k}")
    if step.experts.max() >= shape.experts or step.experts.min() < 0:
        raise ValueError(f"expert ids up to {step.experts.max()}; {shape.name} has {shape.experts} experts")
    return step.experts[np.arange(shape.layers) * traced // shape.layers][:, :, : shape.top_k]


def active_of(experts: np.ndarray) -> tuple[int, ...]:
    """Distinct experts in each layer."""
    return tuple(len(np.unique(layer)) for layer in experts)
