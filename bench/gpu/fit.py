"""From timings to a cost profile: least squares on relative error, two simple forms; the simpler is kept unless the other is much better.

    us = base + perRequest·B + Σ_layers (perLayer + perActive·A) + perKvMiB·KV

with B requests, A active experts of a layer and KV the MiB that attention reads (contexts, capped by windows). `base` is not fitted: it is
the measured time of a step without layers (embedding, final norm, head, argmax) at batch 1; the rest of perLayer could not be told from
it otherwise. The second form adds a kink, perActiveAbove·max(0, A − activeKnee). No request may make a step shorter: perRequest ≥ 0.

Cells are of two kinds: even (exactly A experts, tokens dealt out evenly) and uneven (drawn as a gate might). Uneven routing takes 1–4 %
longer for the same A, and a real gate is uneven, so both kinds get the same total weight. Forms are compared by the error on cells that
were left out, every fifth in turn."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shapes import Shape

MIB = 1 << 20
KNEES = (16, 24, 32, 48, 64, 80, 96)
WORTH = 0.01  # a kink must lower the left-out error by this much


@dataclass(frozen=True)
class Cell:
    """One measured step. `active`: one value per layer, or one for all."""

    batch: int
    active: tuple[int, ...]
    kv_mib: float
    us: float
    uneven: bool = False


def kv_mib(shape: Shape, contexts: list[int]) -> float:
    return shape.kv_bytes_read(contexts) / MIB


def names_of(knee: int) -> list[str]:
    return ["perRequest", "perLayer", "perActive", "perKvMiB"] + (["perActiveAbove"] if knee else [])


def features(shape: Shape, knee: int, cells: list[Cell]) -> np.ndarray:
    rows = []
    for c in cells:
        active = np.asarray(c.active, dtype=float) if len(c.active) > 1 else np.full(shape.layers, float(c.active[0]))
        rows.append([c.batch, shape.layers, active.sum(), c.kv_mib] + ([np.maximum(active - knee, 0).sum()] if knee else []))
    return np.array(rows, dtype=float)


def solve(x: np.ndarray, y: np.ndarray, base: float = 0.0, weight: np.ndarray | None = None) -> np.ndarray:
    """Least squares of x·w to y − base, weighted 1/y: relative errors count the same at 3 ms and 80 ms."""
    root = (np.ones_like(y) if weight is None else np.sqrt(weight)) / y
    return np.linalg.lstsq(x * root[:, None], (y - base) * root, rcond=None)[0]


def coefficients(shape: Shape, knee: int, cells: list[Cell], base: float) -> np.ndarray:
    uneven = np.array([c.uneven for c in cells])
    share = max((~uneven).sum(), 1) / max(uneven.sum(), 1)
    x, y, weight = features(shape, knee, cells), np.array([c.us for c in cells]), np.where(uneven, share, 1.0)
    w = solve(x, y, base, weight)
    return w if w[0] >= 0 else np.concatenate([[0.0], solve(x[:, 1:], y, base, weight)])


def errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    if not len(measured):
        return {"cells": 0}
    e = np.abs(predicted / measured - 1)
    return {
        "cells": len(e),
        "median": float(np.median(e)),
        "p90": float(np.percentile(e, 90)),
        "worst": float(e.max()),
        "bias": float(np.median(predicted / measured - 1)),
    }


def by_kind(shape: Shape, knee: int, w: np.ndarray, cells: list[Cell], base: float) -> dict[str, Any]:
    out = {}
    for name, some in (("even", [c for c in cells if not c.uneven]), ("uneven", [c for c in cells if c.uneven])):
        predicted = base + features(shape, knee, some) @ w if some else np.zeros(0)
        out[name] = errors(predicted, np.array([c.us for c in some]))
    return out


def left_out(shape: Shape, knee: int, cells: list[Cell], base: float, folds: int = 5) -> float:
    """Median relative error on cells that the fit did not see, the two kinds averaged."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for k in range(folds):
        seen = [c for i, c in enumerate(cells) if i % folds != k]
        left = [c for i, c in enumerate(cells) if i % folds == k]
        if left and len(seen) > len(names_of(knee)):
            w = coefficients(shape, knee, seen, base)
            for c, us in zip(left, base + features(shape, knee, left) @ w, strict=True):
                found[c.uneven].append(abs(us / c.us - 1))
    medians = [float(np.median(v)) for v in found.values() if v]
    return float(np.mean(medians)) if medians else float("inf")


def fit_decode(shape: Shape, cells: list[Cell], base: float) -> dict[str, Any]:
    """The profile's decode part: coefficients in µs, errors, and the result of the other form."""
    if len(cells) < 6:
        raise ValueError(f"{len(cells)} cells are too few to fit")
    tried = {knee: left_out(shape, knee, cells, base) for knee in (0, *(k for k in KNEES if k < shape.experts))}
    bent = min((k for k in tried if k), key=lambda k: tried[k], default=0)
    knee = bent if bent and tried[bent] < tried[0] - WORTH else 0

    def form(k: int) -> dict[str, Any]:
        w = coefficients(shape, k, cells, base)
        named = dict(zip(names_of(k), (float(v) for v in w), strict=True))
        return {
            "form": "kink in A" if k else "linear",
            "base": base,
            **named,
            **({"activeKnee": k} if k else {}),
            "kv": kv_terms(shape, named["perKvMiB"]),
            "leftOutMedian": tried[k],
            "error": by_kind(shape, k, w, cells, base),
        }

    return {
        "formula": "us = base + perRequest·B + Σ_layers (perLayer + perActive·A + perActiveAbove·max(0, A−activeKnee)) + perKvMiB·KV",
        "unit": "microseconds",
        **form(knee),
        "other": form(0 if knee else bent) if bent else None,
    }


def kv_terms(shape: Shape, per_mib: float) -> list[dict[str, Any]]:
    """perKvMiB in tokens: µs per 1,000 context tokens of the batch, for each kind of attention layer; a window caps a request's."""
    kinds: dict[tuple[int, int], int] = {}
    for i in range(shape.layers):
        a = shape.attention(i)
        kinds[a.window, a.kv_bytes()] = kinds.get((a.window, a.kv_bytes()), 0) + 1
    return [
        {"layers": n, "window": window or None, "bytesPerToken": size, "perContextKToken": per_mib * n * size * 1000 / MIB}
        for (window, size), n in kinds.items()
    ]


def predict(shape: Shape, decode: dict[str, Any], cells: list[Cell]) -> np.ndarray:
    knee = decode.get("activeKnee", 0)
    return decode["base"] + features(shape, knee, cells) @ np.array([decode[n] for n in names_of(knee)])


def fit_prefill(tokens: list[int], us: list[float]) -> dict[str, Any]:
    """us = base + perToken·T."""
    y = np.array(us)
    x = np.stack([np.ones(len(y)), np.array(tokens, dtype=float)], 1)
    w = solve(x, y)
    return {"formula": "us = base + perToken·T", "base": float(w[0]), "perToken": float(w[1]), "error": errors(x @ w, y)}


def as_profile(shape: Shape, decode: dict[str, Any], prefill: dict[str, Any]) -> dict[str, Any]:
    """The measured parts of an `eldr.profile.v1` file. Layers with a window stand under `windows`: each request counts
    min(context, tokens) there. Capacity, network and latency are not measured here."""
    linear = decode if decode["form"] == "linear" else decode["other"]
    whole = sum(t["perContextKToken"] for t in linear["kv"] if not t["window"])
    windows = [{"tokens": t["window"], "perContextKTokenUs": round(t["perContextKToken"], 4)} for t in linear["kv"] if t["window"]]
    return {
        "shape": {"layers": shape.layers, "experts": shape.experts, "topK": shape.top_k},
        "decode": {
            "kind": "linear",
            "baseUs": round(linear["base"], 2),
            "perRequestUs": round(linear["perRequest"], 4),
            "perLayerUs": round(linear["perLayer"], 4),
            "perActiveExpertUs": round(linear["perActive"], 5),
            "perContextKTokenUs": round(whole, 4),
            **({"windows": windows} if windows else {}),
        },
        "prefill": {"baseUs": round(prefill["base"], 1), "perTokenUs": round(prefill["perToken"], 4)},
        "kv": {"bytesPerToken": shape.kv_bytes_per_token()},
    }
