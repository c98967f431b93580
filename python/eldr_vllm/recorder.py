"""What the hook of the last layer does with the experts of all layers on an accelerator: a few launches, which
are recorded in the CUDA graph of that layer, so they also run on replay, without Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from . import log
from .fetched import Downloads, Fetched, Tensor
from .torch_store import TorchStore, has_triton

# Steps with more rows are prompts; only decode steps are observed.
_MAX_OBSERVED_ROWS = 4096


class Recorder(Protocol):
    nbytes: int
    observes: bool  # counts distinct experts

    def record(self, ids: Sequence[Tensor], slots: Tensor | None, first: int, end: int, padding_runs: bool) -> None:
        """ids: of each layer, [rows, top_k]. Rows from first to end are this worker's, padding included; slots are
        negative, or missing at the end, for padding, and None in a dry run. padding_runs: the engine's kernels
        compute the rows of padding too."""

    def distinct(self, tokens: int) -> Fetched:
        """Distinct experts of the last step, [layers, 2]: of its `tokens` tokens, and of all rows its kernels
        computed."""


def recorder_of(
    layers: int, experts: int, top_k: int, max_rows: int, device: Any, store: TorchStore | None, observes: bool
) -> Recorder | None:
    """None on a CPU. Kernels are compiled here, before the engine records its graphs."""
    if device.type == "cpu":
        return None
    if has_triton(device) if store is None else store.kernels:
        made = KernelRecorder(layers, experts, top_k, device, store, observes)
        try:
            made.warm()
            return made
        except Exception as error:
            log.warning("the kernels cannot be used, plain operations are slower: %s: %s", type(error).__name__, error)
    return PlainRecorder(layers, experts, top_k, max_rows, device, store)


class KernelRecorder:
    """Two or three launches: one joins the layers' ids, one stores them, one counts distinct experts."""

    def __init__(self, layers: int, experts: int, top_k: int, device: Any, store: TorchStore | None, observes: bool) -> None:
        self.layers, self.experts, self.top_k, self.store = layers, experts, top_k, store
        self._distinct: Tensor | None = torch.zeros(2 * layers, dtype=torch.int32, device=device) if observes else None
        self._downloads = Downloads(device)
        self.nbytes, self.observes = 0, observes

    def warm(self) -> None:
        if self._distinct is None:
            return
        slots = torch.full((1,), -1, dtype=torch.int64, device=self._distinct.device)
        ids = torch.zeros((1, self.top_k), dtype=torch.int32, device=slots.device)
        for padding_runs in (True, False):
            self.record([ids] * self.layers, slots, 0, 1, padding_runs)
        self.distinct(1).array()

    def record(self, ids: Sequence[Tensor], slots: Tensor | None, first: int, end: int, padding_runs: bool) -> None:
        rows, own = ids[0].shape[0], end - first
        observed = self._distinct is not None and own <= _MAX_OBSERVED_ROWS
        if slots is None or not (self.store is not None or observed):
            return
        joined = torch.cat(list(ids))
        if self.store is not None:
            self.store.scatter_layers(slots, joined, rows, first, min(own, slots.shape[0]))
        if observed:
            from .distinct_kernel import distinct

            distinct(joined, slots, self._distinct, self.layers, self.experts, self.top_k, rows, first, own, padding_runs)

    def distinct(self, tokens: int) -> Fetched:
        assert self._distinct is not None
        return self._downloads.fetch(self._distinct)


class PlainRecorder:
    """Plain operations: the ids of a step are kept in a buffer, from which distinct experts are counted after the
    forward pass."""

    def __init__(self, layers: int, experts: int, top_k: int, max_rows: int, device: Any, store: TorchStore | None) -> None:
        self.layers, self.experts, self.store = layers, experts, store
        self._device = torch.device(device)
        self._buffer = torch.zeros((max_rows, layers, top_k), dtype=torch.uint8 if experts <= 256 else torch.int16, device=device)
        self._downloads = Downloads(self._device)
        self.nbytes, self.observes = self._buffer.numel() * self._buffer.element_size(), False  # counted after the step

    def record(self, ids: Sequence[Tensor], slots: Tensor | None, first: int, end: int, padding_runs: bool) -> None:
        buffer = self._buffer[: end - first]
        buffer.copy_(torch.stack(list(ids), dim=1)[first:end])
        if self.store is not None and slots is not None:
            tokens = min(len(buffer), slots.shape[0])
            self.store.scatter(slots[:tokens], buffer[:tokens])

    def distinct(self, tokens: int) -> Fetched:
        """The rows of padding of a step that a graph replays are not known here, so they are not counted."""
        used = distinct_experts(self._buffer[:tokens], self.experts)
        return self._downloads.fetch(torch.stack([used, used], dim=1).view(-1))


def distinct_experts(ids: Tensor, experts: int) -> Tensor:
    """Of each layer; ids: [tokens, layers, top_k]."""
    layers = ids.shape[1]
    cells = layers * experts
    ids = ids.to(torch.int64)
    fired = torch.zeros(cells + 1, dtype=torch.int32, device=ids.device)  # the last cell takes ids that are not experts of the model
    layer_cell = (torch.arange(layers, device=ids.device) * experts)[None, :, None]
    where = (ids + layer_cell).masked_fill_((ids < 0) | (ids >= experts), cells)
    fired.index_fill_(0, where.reshape(-1), 1)
    return fired[:cells].view(layers, experts).sum(1, dtype=torch.int32)
