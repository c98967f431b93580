"""Reads the steps that eldr_inside/recorder.py wrote in an engine, and sums them up. Pure, but for reading."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A gap between the end of a step and the planning of the next one up to which the engine counts as busy.
BUSY_GAP_MS = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """A decode step of a busy engine."""

    done: float  # seconds since the epoch
    ms: float  # since the end of the step before
    batch: int
    context: int
    experts: tuple[int, ...] | None  # distinct, of each layer
    read: tuple[int, ...] | None  # with padding rows

    @property
    def mean_experts(self) -> float:
        return sum(self.experts) / len(self.experts) if self.experts else 0.0

    @property
    def mean_read(self) -> float:
        return sum(self.read) / len(self.read) if self.read else 0.0


def read_rows(path: Path) -> list[list[Any]]:
    """A last line that is not complete yet is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def decode_steps(rows: Iterable[list[Any]], begin: float = 0.0, end: float = float("inf"), busy_gap_ms: float = BUSY_GAP_MS) -> list[Step]:
    """Steps of decode only, after another step, of an engine that did not wait in between: planned before the step
    before it was done, or right after. begin, end: seconds since the epoch."""
    ordered = sorted(rows, key=lambda row: row[0])
    out = []
    for before, (done, planned, requests, tokens, context, experts, read) in itertools.pairwise(ordered):
        was_decode = before[2] == before[3]
        is_busy = planned - before[0] <= busy_gap_ms / 1000
        if requests == tokens and was_decode and is_busy and begin <= done <= end:
            ms = 1000 * (done - before[0])
            out.append(Step(done, ms, requests, context, tuple(experts) if experts else None, tuple(read) if read else None))
    return out


def work(steps: list[Step]) -> dict[str, Any]:
    """Steps, mean batch and mean distinct experts per layer."""
    if not steps:
        return {"steps": 0}
    counted = [step for step in steps if step.experts]
    out: dict[str, Any] = {"steps": len(steps), "batch": round(sum(step.batch for step in steps) / len(steps), 3)}
    if counted:
        out["experts"] = round(sum(step.mean_experts for step in counted) / len(counted), 3)
    return out


def by_batch(steps: list[Step]) -> dict[str, list[float]]:
    """Mean experts and milliseconds of the steps of each batch size: for comparisons at equal batch."""
    groups: dict[int, list[Step]] = {}
    for step in steps:
        if step.experts:
            groups.setdefault(step.batch, []).append(step)
    sizes = sorted(groups)
    return {
        "batch": list(map(float, sizes)),
        "steps": [float(len(groups[size])) for size in sizes],
        "experts": [round(sum(step.mean_experts for step in groups[size]) / len(groups[size]), 4) for size in sizes],
        "ms": [round(sum(step.ms for step in groups[size]) / len(groups[size]), 4) for size in sizes],
    }


def thinned(count: int, limit: int) -> list[int]:
    """Indices of at most that many items, evenly spaced."""
    if count <= limit:
        return list(range(count))
    return [index * count // limit for index in range(limit)]
