"""Format of the `eldr` object in the `kv_transfer_params` of a hand-off. The TypeScript side is
src/wire/counts.ts; tests compare both with test/golden/wire/vectors.json."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

Reject = Literal[
    "missing",
    "wrong_version",
    "wrong_shape",
    "wrong_model",
    "bad_base64",
    "bad_sums",
    "too_little_covered",
    "bad_value",
]
REJECTS: Final = get_args(Reject)
# With a longer half-life, recent counts could exceed 16 bits: 256 · Σ 2^(−d/178) > 65,535.
MAX_HALF_LIFE: Final = 177
RECENT_UNITS: Final = 256
_MAX_TOKENS: Final = 2**31 - 1
_ABSENT: Final = object()

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Captured:
    """Counts of a prompt. counts: [layers, experts]; recent: weighted counts of the same shape, in units of 1/256
    token."""

    top_k: int
    tokens: int
    covered: int
    counts: Ints
    recent: Ints | None = None
    half_life: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    layers: int
    experts: int
    top_k: int
    min_covered: float = 0.5
    half_life: float | None = None


@dataclass(frozen=True, slots=True)
class Handoff:
    """Validated counts: flat, as received, with the shift not undone."""

    counts: npt.NDArray[np.uint16]
    tokens: int
    covered: int
    recent: npt.NDArray[np.float32] | None = None


def encode(captured: Captured) -> dict[str, Any]:
    layers, experts = captured.counts.shape
    shift = 0
    if captured.tokens > 0xFFFF:  # no count exceeds the number of tokens
        most = int(captured.counts.max(initial=0))
        while most >> shift > 0xFFFF:
            shift += 1
    out: dict[str, Any] = {
        "v": 1,
        "layers": int(layers),
        "experts": int(experts),
        "top_k": captured.top_k,
        "tokens": captured.tokens,
        "covered": captured.covered,
        "shift": shift,
        "counts": _text(captured.counts >> shift if shift else captured.counts),
    }
    if captured.recent is not None:
        out["recent"] = _text(captured.recent)
        out["half_life"] = captured.half_life
    return out


def encode_decode(ids: Ints, experts: int) -> dict[str, Any]:
    """The `decode` key of a calibration response. ids: [steps, layers, top_k]."""
    dtype = "u8" if experts <= 256 else "u16"
    raw = np.ascontiguousarray(ids.astype(np.uint8 if dtype == "u8" else "<u2"))
    return {"steps": len(ids), "dtype": dtype, "ids": base64.b64encode(raw.tobytes()).decode()}


def read(value: object, expected: Expected) -> Handoff | Reject:
    """Returns the counts of a hand-off, or why they cannot be used. Accepts any value and never raises."""
    if value is None:
        return "missing"
    if not isinstance(value, (Mapping, list)):
        return "bad_value"
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    text = fields.get("counts", _ABSENT)
    if "v" not in fields and text is _ABSENT:
        return "missing"
    if _whole(fields.get("v")) != 1:
        return "wrong_version"
    if _whole(fields.get("layers")) != expected.layers or _whole(fields.get("experts")) != expected.experts:
        return "wrong_shape"
    if _whole(fields.get("top_k")) != expected.top_k:
        return "wrong_model"
    tokens, covered, shift = (_whole(fields.get(key)) for key in ("tokens", "covered", "shift"))
    if tokens is None or not 0 < tokens <= _MAX_TOKENS or covered is None or not 0 <= covered <= tokens:
        return "bad_value"
    # Without this check, a large shift would let any counts pass the check of sums below.
    if shift is None or not 0 <= shift <= 15 or (shift > 0 and covered < 2 ** (15 + shift)):
        return "bad_value"
    if covered < expected.min_covered * tokens:
        return "too_little_covered"
    if not isinstance(text, str):
        return "missing" if text is _ABSENT else "bad_value"
    cells = expected.layers * expected.experts
    counts = _cells(text, cells)
    if counts is None:
        return "bad_base64"
    sums = counts.reshape(expected.layers, expected.experts).astype(np.int64).sum(axis=1) << shift
    most = expected.top_k * covered
    if (sums > most).any() or (sums < most - expected.experts * (2**shift - 1)).any():
        return "bad_sums"
    return _with_recent(Handoff(counts, tokens, covered), fields, expected)


def _with_recent(plain: Handoff, fields: Mapping[str, Any], expected: Expected) -> Handoff | Reject:
    text, half_life = fields.get("recent"), fields.get("half_life")
    if expected.half_life is None or text is None:
        return plain
    if isinstance(half_life, bool) or not isinstance(half_life, (int, float)) or not 1 <= half_life <= MAX_HALF_LIFE:
        return "bad_value"
    if half_life != expected.half_life:
        return plain
    if not isinstance(text, str):
        return "bad_value"
    units = _cells(text, len(plain.counts))
    if units is None:
        return "bad_base64"
    # Upper limit of a layer's sum. It is unknown which tokens are covered, so assume the last ones, which
    # weigh most; allow one unit per cell for rounding.
    last = (1 - 2 ** (-plain.covered / half_life)) / (1 - 2 ** (-1 / half_life))
    sums = units.reshape(expected.layers, expected.experts).astype(np.int64).sum(axis=1)
    if (sums > expected.top_k * RECENT_UNITS * last + expected.experts).any():
        return "bad_sums"
    return Handoff(plain.counts, plain.tokens, plain.covered, (units / RECENT_UNITS).astype(np.float32))


def _text(values: npt.NDArray[Any]) -> str:
    return binascii.b2a_base64(np.ascontiguousarray(values, "<u2").data, newline=False).decode("ascii")


def _cells(text: str, cells: int) -> npt.NDArray[np.uint16] | None:
    """Decodes strictly: exact length, standard alphabet, padded, no bits after the last byte; else None."""
    if len(text) != -(-2 * cells // 3) * 4 or not text.isascii():
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != 2 * cells or base64.b64encode(raw).decode() != text:
        return None
    return np.frombuffer(raw, "<u2").astype(np.uint16)


def _whole(value: object) -> int | None:
    """A whole number, or None. As in JSON, 2.0 equals 2, and true is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None
