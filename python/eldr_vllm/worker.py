"""The worker's half: updates the store in each step and computes the sums that the scheduler requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .messages import Later, Part, StepCounts, StepMeta
from .metrics import Tally

if TYPE_CHECKING:  # capture.py needs torch
    from .capture import Capture


class Worker:
    """layers: ids of this stage's MoE layers, increasing. capture: None if nothing is captured; `off` then
    says why, unless the stage just has no MoE layers."""

    def __init__(self, stage: int, layers: list[int], capture: Capture | None, off: str | None, tally: Tally | None) -> None:
        self.stage, self.layers, self.capture, self.tally = stage, layers, capture, tally
        self._off = off
        self._reported_off = False

    @property
    def off(self) -> str | None:
        return self._off or (None if self.capture is None else self.capture.off)

    def begin(self, meta: StepMeta) -> None:
        """Before the forward pass."""
        capture = self.capture
        if not (meta.unknown or meta.copies) or capture is None or capture.store is None or capture.off is not None:
            return
        try:
            if meta.unknown:
                capture.store.forget(meta.unknown)
            if meta.copies:  # after it: the target of a copy is a new block
                capture.store.copy(meta.copies)
        except Exception as error:
            capture.fail("preparing a step", error)

    def end(self, meta: StepMeta, observe: bool) -> None:
        """After the forward pass, while its context still exists. observe: also count the distinct experts of
        decode steps."""
        capture = self.capture
        if capture is None or meta.tokens == 0 or capture.off is not None:
            return
        try:
            capture.finish(meta.tokens)
            if observe and self.tally is not None and meta.decode_batch > 0 and self.tally.is_due():
                self.tally.add(meta.decode_batch, capture.distinct(meta.tokens))
            capture.forget()
        except Exception as error:
            capture.fail("storing a step's experts", error)

    def answer(self, meta: StepMeta) -> StepCounts | None:
        """Launches the requested sums without waiting: the values are read where they are needed."""
        off = self.off
        if off is None and not meta.asks:
            return None
        if off is None and self.capture is not None and self.capture.store is not None:
            try:
                return StepCounts({self.stage: self._part(meta, self.capture.store)})
            except Exception as error:
                self.capture.fail("summing a request's experts", error)
                off = self.off
        if off is None:
            return StepCounts({self.stage: Part([], list(meta.ends))})  # a stage without MoE layers
        if self._reported_off and not meta.asks:
            return None
        self._reported_off = True
        return StepCounts(off=off)

    def _part(self, meta: StepMeta, store: Any) -> Part:
        part = Part(self.layers, list(meta.ends))
        if meta.ends:
            part.sums = Later(store.sums(list(meta.ends.values())).get)
        if meta.records:
            keys = [(rid, position, slot) for rid, rows in meta.records.items() for position, slot in rows]
            part.record_keys = [(rid, position) for rid, position, _ in keys]
            part.records = Later(store.rows([slot for _, _, slot in keys]).get)
        return part
