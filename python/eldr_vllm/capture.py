"""Hooks on the routers of the MoE layers. Each hook gets the experts of a step's tokens, [tokens, top_k], as
logical ids before EPLB maps them.

A hook only keeps a reference to the ids. On an accelerator, the hook of the last layer copies the ids of all
layers into one buffer and scatters it into the store. These few kernel launches per step are recorded in the
CUDA graph of the last layer, so they also run on replay, without Python. If layers are recorded as separate
graphs, the references prevent a later graph from reusing the memory of the ids. The slots are a view of the
engine's persistent tensor (with −1 for padding), so a recorded scatter sees the slots of each step.

On a CPU there are no graphs, and `finish` does the work after the forward pass. (binding.py rejects layers
compiled for a CPU, because torch.compile would trace into the hook and lose its effect; on an accelerator the
layer is opaque to it.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import log
from .fetched import Fetched, Tensor
from .torch_store import TorchStore


class Capture:
    def __init__(
        self,
        layers: int,
        experts: int,
        top_k: int,
        max_tokens: int,
        device: Any,
        store: TorchStore | None,
        slots: Callable[[], Tensor | None],
        own_rows: Callable[[int], tuple[int, int]] = lambda rows: (0, rows),
    ) -> None:
        """slots: slot of each token in the running step, None in a dummy run. own_rows: range of this
        worker's rows in a layer."""
        self.layers, self.experts, self.top_k = layers, experts, top_k
        self.device = torch.device(device)
        self.store = store
        self._slots, self._own_rows = slots, own_rows
        self.off: str | None = None
        self._references: dict[int, Tensor] = {}
        self._buffer: Tensor | None = None
        if self.device.type != "cpu":
            kind = torch.uint8 if experts <= 256 else torch.int16
            self._buffer = torch.zeros((max_tokens, layers, top_k), dtype=kind, device=self.device)
        self._layer_cell = (torch.arange(layers, device=self.device) * experts)[None, :, None]

    @property
    def nbytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.numel() * self._buffer.element_size()

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

        return keep_last if last and self._buffer is not None else keep

    def _record(self) -> None:
        assert self._buffer is not None
        ids = self._joined()
        buffer = self._buffer[: len(ids)]
        buffer.copy_(ids)
        slots = None if self.store is None else self._slots()
        if self.store is not None and slots is not None:
            tokens = min(len(ids), slots.shape[0])
            self.store.scatter(slots[:tokens], buffer[:tokens])

    def fail(self, where: str, error: BaseException) -> None:
        """Disables capture permanently. Serving continues, and hand-offs say why they carry no counts."""
        if self.off is None:
            self.off = f"{where} failed: {type(error).__name__}: {error}"
            log.failure("capture is off from now on, requests are served without counts: %s", self.off)
        self._references.clear()

    def finish(self, tokens: int) -> None:
        """Called after a forward pass with its number of tokens. Does nothing on an accelerator, where the
        hooks have done the work."""
        if self._buffer is not None or self.store is None or tokens == 0:
            return
        slots = self._slots()
        if slots is None:
            return
        ids = self._joined()
        tokens = min(len(ids), slots.shape[0])
        self.store.scatter(slots[:tokens], ids[:tokens])

    def distinct(self, tokens: int) -> Any:
        """Number of distinct experts per layer in the step: [layers], copied from the device
        asynchronously."""
        ids = self._step_ids(tokens).to(torch.int64)
        cells = self.layers * self.experts
        fired = torch.zeros(cells + 1, dtype=torch.int32, device=self.device)  # the last cell takes ids that are not experts of the model
        where = (ids + self._layer_cell).masked_fill_((ids < 0) | (ids >= self.experts), cells)
        fired.index_fill_(0, where.reshape(-1), 1)
        return Fetched(self.device, fired[:cells].view(self.layers, self.experts).sum(1, dtype=torch.int32))

    def forget(self) -> None:
        """Drops a step's references, so that a step without a forward pass does not see them again."""
        self._references.clear()

    def _step_ids(self, tokens: int) -> Tensor:
        return self._joined() if self._buffer is None else self._buffer[:tokens]

    def _joined(self) -> Tensor:
        """[tokens, layers, top_k]"""
        missing = [row for row in range(self.layers) if row not in self._references]
        if missing:
            raise RuntimeError(f"layers {missing} of {self.layers} routed nothing in a step")
        ids = torch.stack([self._references[row] for row in range(self.layers)], dim=1)
        first, end = self._own_rows(ids.shape[0])
        if ids.shape[2] != self.top_k:
            raise RuntimeError(f"a router gave {ids.shape[2]} experts per token, expected {self.top_k}")
        return ids[first:end]
