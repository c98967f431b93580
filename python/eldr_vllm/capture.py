"""Hooks on the routers of the MoE layers. Each sees the experts of a step's tokens, [tokens, top_k], logical ids, before EPLB maps them.

On an accelerator a hook copies them into one buffer, and the hook of the last layer scatters the buffer into the store. Both are recorded
with the CUDA graph that the layer runs in, so they happen on replay, when no Python runs. The slots are a view of the engine's own
persistent tensor (padding is −1 there), so a recorded scatter sees each step's slots.

On a CPU there are no graphs: a hook keeps a reference, and `finish` does the work after the forward pass. (There torch.compile would trace
through the hook and lose what it does, so compiled layers are refused in binding.py; on an accelerator the layer is opaque to it.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import log
from .torch_store import Tensor, TorchStore, fetch


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
        """slots: the running step's slot of each token, none in a dry run. own_rows: which of a layer's rows are this worker's."""
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
        """For the layer with that place among the MoE layers of this worker."""
        if self._buffer is None:
            references = self._references

            def keep(ids: Tensor) -> None:
                references[row] = ids

            return keep
        buffer, last = self._buffer, row == self.layers - 1

        def record(ids: Tensor) -> None:
            if self.off is not None:
                return
            try:
                first, end = self._own_rows(ids.shape[0])
                buffer[: end - first, row].copy_(ids[first:end])
                if last and self.store is not None:
                    slots = self._slots()
                    if slots is not None:
                        tokens = min(end - first, slots.shape[0])
                        self.store.scatter(slots[:tokens], buffer[:tokens])
            except Exception as error:
                self.fail("a router's hook", error)

        return record

    def fail(self, where: str, error: BaseException) -> None:
        """Off for good. Serving goes on, and hand-offs say why they carry no counts."""
        if self.off is None:
            self.off = f"{where} failed: {type(error).__name__}: {error}"
            log.failure("capture is off from now on, requests are served without counts: %s", self.off)
        self._references.clear()

    def finish(self, tokens: int) -> None:
        """After a forward pass of so many tokens; on an accelerator the hooks have done it."""
        if self._buffer is not None or self.store is None or tokens == 0:
            return
        slots = self._slots()
        if slots is None:
            return
        ids = self._step_ids(tokens)
        tokens = min(len(ids), slots.shape[0])
        self.store.scatter(slots[:tokens], ids[:tokens])

    def distinct(self, tokens: int) -> Any:
        """How many experts each layer used in the step: [layers], on its way from the device."""
        ids = self._step_ids(tokens).to(torch.int64)
        fired = torch.zeros(self.layers * self.experts, dtype=torch.int32, device=self.device)
        where = (ids.clamp_(0, self.experts - 1) + self._layer_cell).reshape(-1)
        fired.index_fill_(0, where, 1)
        return fetch(self.device, [fired.view(self.layers, self.experts).sum(1, dtype=torch.int32)])

    def forget(self) -> None:
        """A step's references must not outlive it, or a step without a forward pass would see them again."""
        self._references.clear()

    def _step_ids(self, tokens: int) -> Tensor:
        if self._buffer is not None:
            return self._buffer[:tokens]
        missing = [row for row in range(self.layers) if row not in self._references]
        if missing:
            raise RuntimeError(f"layers {missing} of {self.layers} routed nothing in a step of {tokens} tokens")
        ids = torch.stack([self._references[row] for row in range(self.layers)], dim=1)
        first, end = self._own_rows(ids.shape[0])
        if ids.shape[2] != self.top_k:
            raise RuntimeError(f"a router gave {ids.shape[2]} experts a token, expected {self.top_k}")
        return ids[first:end]
