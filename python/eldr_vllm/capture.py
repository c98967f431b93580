"""Hooks on the routers of the MoE layers. Each gets the experts of a step's tokens, [rows, top_k], as logical
ids before EPLB maps them.

A hook only keeps a reference. On an accelerator the hook of the last layer hands the ids of all layers to a
recorder (recorder.py). If layers are recorded as separate graphs, the references keep the memory of the ids
from being reused by a later graph. The slots are a view of the engine's persistent tensor (with −1 for
padding), so a recorded scatter sees the slots of each step.

On a CPU there are no graphs, and `finish` does the work after the forward pass. (binding.py rejects layers
compiled for a CPU, because torch.compile would trace into the hook and lose its effect; on an accelerator the
layer is opaque to it.)"""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import log
from .fetched import Fetched, Tensor
from .recorder import Recorder, distinct_experts
from .torch_store import TorchStore


class Capture:
    def __init__(
        self,
        layers: int,
        experts: int,
        top_k: int,
        store: TorchStore | None,
        recorder: Recorder | None,
        slots: Callable[[], Tensor | None],
        own_rows: Callable[[int], tuple[int, int]] = lambda rows: (0, rows),
        padding_runs: Callable[[], bool] = lambda: True,
    ) -> None:
        """recorder: None on a CPU. slots: slot of each token in the running step, None in a dry run. own_rows:
        range of this worker's rows in a layer. padding_runs: whether the running step computes its padding."""
        self.layers, self.experts, self.top_k = layers, experts, top_k
        self.store, self.recorder = store, recorder
        self._slots, self._own_rows, self._padding_runs = slots, own_rows, padding_runs
        self.off: str | None = None
        self._references: dict[int, Tensor] = {}

    def hook(self, row: int) -> Callable[[Tensor], None]:
        """Hook for the row-th MoE layer of this worker."""
        references, last = self._references, row == self.layers - 1

        def keep(ids: Tensor) -> None:
            references[row] = ids

        def keep_last(ids: Tensor) -> None:
            references[row] = ids
            if self.off is None:
                try:
                    self._record()
                except Exception as error:
                    self.fail("a router's hook", error)
            references.clear()

        return keep_last if last and self.recorder is not None else keep

    def _record(self) -> None:
        assert self.recorder is not None
        ids = self._ids()
        first, end = self._own_rows(ids[0].shape[0])
        self.recorder.record(ids, self._slots(), first, end, self.recorder.observes and self._padding_runs())

    def fail(self, where: str, error: BaseException) -> None:
        """Disables capture permanently. Serving continues, and hand-offs say why they carry no counts."""
        if self.off is None:
            self.off = f"{where} failed: {type(error).__name__}: {error}"
            log.failure("capture is off from now on, requests are served without counts: %s", self.off)
        self._references.clear()

    def finish(self, tokens: int) -> None:
        """Called after a forward pass with its number of tokens; on an accelerator the hooks have done the
        work already."""
        if self.recorder is not None or self.store is None or tokens == 0:
            return
        slots = self._slots()
        if slots is None:
            return
        ids = self._stacked()
        tokens = min(len(ids), slots.shape[0])
        self.store.scatter(slots[:tokens], ids[:tokens])

    def distinct(self, tokens: int) -> Fetched:
        """Distinct experts per layer of a step, [layers, 2], copied from the device asynchronously: of its
        tokens, and of all rows that its kernels computed."""
        if self.recorder is not None:
            return self.recorder.distinct(tokens)
        used = distinct_experts(self._stacked(), self.experts).numpy()
        return Fetched(used.repeat(2))  # a CPU has no graphs, so no padding

    def forget(self) -> None:
        """Drops a step's references, so that a step without a forward pass does not see them again."""
        self._references.clear()

    def _ids(self) -> list[Tensor]:
        """Of each layer, [rows, top_k]."""
        missing = [row for row in range(self.layers) if row not in self._references]
        if missing:
            raise RuntimeError(f"layers {missing} of {self.layers} routed nothing in a step")
        ids = [self._references[row] for row in range(self.layers)]
        if ids[0].shape[1] != self.top_k:
            raise RuntimeError(f"a router gave {ids[0].shape[1]} experts per token, expected {self.top_k}")
        return ids

    def _stacked(self) -> Tensor:
        """[tokens, layers, top_k]"""
        ids = torch.stack(self._ids(), dim=1)
        first, end = self._own_rows(ids.shape[0])
        return ids[first:end]
