"""Messages between the two halves of the connector in each step. Plain data, pickled if workers are separate
processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .store import Array, End, Sums


@dataclass(slots=True)
class StepMeta:
    """Scheduler → workers, before the forward pass."""

    tokens: int = 0
    # Requests in the step if it is a decode step (one token per request, and drafts), otherwise 0.
    decode_batch: int = 0
    # New blocks whose KV may come from elsewhere; after them, copies of blocks as (from, to).
    unknown: list[int] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    # Prompts whose last token is computed in this step.
    ends: dict[str, End] = field(default_factory=dict)
    # Generated tokens of calibration requests that are computed in this step, by request: (position, slot).
    records: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        return bool(self.ends or self.records)


# One object for all empty steps, to avoid allocations: a prefill worker that is idle but holds blocks for
# decode workers takes many.
EMPTY_STEP = StepMeta()


class Later:
    """A value that the device is still computing. Only `get` and sending it to another process wait for
    it."""

    __slots__ = ("_get", "_value")

    def __init__(self, get: Callable[[], Any]) -> None:
        self._get: Callable[[], Any] | None = get
        self._value: Any = None

    def get(self) -> Any:
        if self._get is not None:
            self._value, self._get = self._get(), None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return (_now, (self.get(),))


def _now(value: Any) -> Later:
    return Later(lambda: value)


@dataclass(slots=True)
class Part:
    """Counts of one pipeline stage. layers: its MoE layers in increasing order; sums: in the order of
    `requests`."""

    layers: list[int]
    requests: list[str] = field(default_factory=list)
    sums: Later | None = None  # of Sums
    # Decode ids, [rows, layers, top_k], one row per (request, position).
    record_keys: list[tuple[str, int]] = field(default_factory=list)
    records: Later | None = None  # of Array


@dataclass(slots=True)
class StepCounts:
    """Workers → scheduler, after the step."""

    parts: dict[int, Part] = field(default_factory=dict)  # by pipeline stage
    off: str | None = None

    def aggregate(self, other: StepCounts) -> StepCounts:
        return StepCounts(self.parts | other.parts, self.off or other.off)


@dataclass(frozen=True, slots=True)
class Counted:
    """The sums of one request, joined over stages."""

    counts: Array
    covered: int
    recent: Array | None


def sums_of(part: Part) -> Sums | None:
    return None if part.sums is None else part.sums.get()
