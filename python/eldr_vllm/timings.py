"""Measures the host time of the connector's calls in a served engine (setting `timings`) and logs it. A call
belongs to the hand-off that ends after it, so steps without one, which are many, do not hide its cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from . import log

_HAND_OFFS: Final = 50  # per report


class Timings:
    def __init__(self) -> None:
        self._step: dict[str, float] = {}
        self._seen: dict[str, list[float]] = {}
        self._hand_offs = 0

    def watch(self, owner: Any, *names: str) -> None:
        """Replaces methods of this object."""
        for name in names:
            setattr(owner, name, self._timed(name.strip("_"), getattr(owner, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._step[name] = self._step.get(name, 0.0) + time.perf_counter() - began

        return call

    def step_ended(self, hand_offs: int) -> None:
        step, self._step = self._step, {}
        if hand_offs == 0:
            return
        for name, seconds in step.items():
            self._seen.setdefault(name, []).append(1e6 * seconds / hand_offs)
        self._hand_offs += hand_offs
        if self._hand_offs >= _HAND_OFFS:
            log.info("host time of %d hand-offs, µs each, median (p90): %s", self._hand_offs, self._report())
            self._seen, self._hand_offs = {}, 0

    def _report(self) -> str:
        parts = []
        for name, values in self._seen.items():
            ordered = sorted(values)
            parts.append(f"{name} {statistics.median(ordered):.0f} ({ordered[int(0.9 * (len(ordered) - 1))]:.0f})")
        return ", ".join(parts)
