"""The store on the device. Nothing here waits for the device: sizes come from the host, padding goes to a scratch row instead of being
masked out, and results come back through pinned memory with an event. `scatter` may be recorded in a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from .layout import Layout
from .store import Array, End, Sums

Tensor = Any
# Weights of recent tokens are added up as whole numbers: the sum does not depend on the order in which a device adds.
_UNITS: Final = 2.0**40
# Tokens summed at once; bounds what a sum needs beside the store (at 48 layers and top 8, 25 MiB of indices).
_CHUNK_TOKENS: Final = 8192


class TorchStore:
    def __init__(self, layout: Layout, device: Any) -> None:
        self.layout, self.device = layout, torch.device(device)
        rows = (layout.layers, layout.experts)
        zeros = _zeros_on(self.device)
        if layout.form == "slots":
            slots = layout.blocks * layout.block_size
            self.scratch = slots
            self.ids = zeros((slots + 1, layout.layers, layout.top_k), torch.uint8 if layout.id_bytes == 1 else torch.int16)
            self.known = zeros((slots + 1,), torch.uint8)
        else:
            self.scratch = layout.blocks * layout.block_size  # the first slot of the scratch block
            count_type = torch.uint8 if layout.count_bytes == 1 else torch.int16
            self.counts = zeros((layout.blocks + 1, *rows), count_type)
            self.covered = zeros((layout.blocks + 1,), torch.int16)
            self.recent = None if layout.half_life is None else zeros((layout.blocks + 1, *rows), torch.float32)
            self._one = torch.ones((), dtype=count_type, device=self.device)
            self._one16 = torch.ones((), dtype=torch.int16, device=self.device)
        self._layer_cell = (torch.arange(layout.layers, device=self.device) * layout.experts)[None, :, None]
        self._offsets = torch.arange(layout.block_size, device=self.device)

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def _tensors(self) -> list[Tensor]:
        if self.layout.form == "slots":
            return [self.ids, self.known]
        return [tensor for tensor in (self.counts, self.covered, self.recent) if tensor is not None]

    def reset(self, blocks: Sequence[int]) -> None:
        if not blocks:
            return
        index = self._sent(np.asarray(blocks, np.int64))
        if self.layout.form == "slots":
            self.known[: self.scratch].view(-1, self.layout.block_size).index_fill_(0, index, 0)
            return
        for tensor in self._tensors():
            tensor.index_fill_(0, index, 0)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if not pairs:
            return
        index = self._sent(np.asarray(pairs, np.int64))
        size = self.layout.block_size
        for tensor in (self.ids, self.known):
            whole = tensor[: self.scratch].view(-1, size, *tensor.shape[1:])
            whole.index_copy_(0, index[:, 1], whole.index_select(0, index[:, 0]))

    def scatter(self, slots: Tensor, ids: Tensor) -> None:
        # masked_fill and not where: its scalar is an argument of the kernel, not a tensor to be sent while a graph is recorded
        at = slots.to(torch.int64).masked_fill(slots < 0, self.scratch)
        if self.layout.form == "slots":
            self.ids.index_copy_(0, at, ids.to(self.ids.dtype))
            self.known.index_fill_(0, at, 1)
            return
        layout = self.layout
        block = torch.div(at, layout.block_size, rounding_mode="floor")
        cells = layout.layers * layout.experts
        where = (block * cells)[:, None, None] + self._layer_cell + ids.clamp(0, layout.experts - 1)
        where = where.view(-1)
        self.counts.view(-1).scatter_add_(0, where, self._one.expand(where.shape))
        self.covered.scatter_add_(0, block, self._one16.expand(block.shape))
        if self.recent is not None:
            offset = at - block * layout.block_size
            weight = torch.exp2((offset + 1 - layout.block_size) / layout.half_life)
            weight = weight[:, None, None].expand(ids.shape).reshape(-1)
            self.recent.view(-1).scatter_add_(0, where, weight)

    def sums(self, ends: Sequence[End]) -> PendingSums:
        """Launched on the current stream behind the step's scatter; read when the event has passed."""
        layout = self.layout
        size, cells = layout.block_size, layout.layers * layout.experts
        # One column per block: block, request, its tokens that belong to the prompt, and where it starts, seen from the prompt's end.
        columns = np.concatenate([np.zeros((4, 0), np.int64), *(_columns(row, end, size) for row, end in enumerate(ends))], axis=1)
        zeros = _zeros_on(self.device)
        counts, covered = zeros((len(ends), cells), torch.int32), zeros((len(ends),), torch.int32)
        weighs_float = layout.form == "blocks"
        recent = None
        if layout.half_life is not None:
            recent = zeros((len(ends), cells), torch.float64 if weighs_float else torch.int64)
        sent = self._sent(columns)
        chunk = max(1, _CHUNK_TOKENS // size)
        for first in range(0, columns.shape[1], chunk):
            part = sent[:, first : first + chunk]
            if weighs_float:
                self._add_blocks(part, counts, covered, recent)
            else:
                self._add_slots(part, counts, covered, recent)
        return PendingSums(self, counts, covered, recent)

    def _add_blocks(self, part: Tensor, counts: Tensor, covered: Tensor, recent: Tensor | None) -> None:
        block, request, _, to_end = part
        counts.index_add_(0, request, self.counts[block].view(len(block), -1).to(torch.int32))
        covered.index_add_(0, request, self.covered[block].to(torch.int32))
        if recent is not None and self.recent is not None:
            after = to_end - self.layout.block_size
            factor = torch.exp2(-after.to(torch.float64) / self.layout.half_life)
            recent.index_add_(0, request, self.recent[block].view(len(block), -1).to(torch.float64) * factor[:, None])

    def _add_slots(self, part: Tensor, counts: Tensor, covered: Tensor, recent: Tensor | None) -> None:
        layout = self.layout
        block, request, tokens, to_end = part
        slots = block[:, None] * layout.block_size + self._offsets  # [blocks of the chunk, block size]
        known = self.known[slots].to(torch.int32) * (self._offsets < tokens[:, None])
        covered.index_add_(0, request, known.sum(1, dtype=torch.int32))
        cells = layout.layers * layout.experts
        where = self.ids[slots.view(-1)].to(torch.int64)
        where.clamp_(0, layout.experts - 1).add_(self._layer_cell)
        where += (request * cells)[:, None].expand(slots.shape).reshape(-1)[:, None, None]
        weight = known.view(-1)[:, None, None].expand(where.shape)
        where = where.view(-1)
        counts.view(-1).scatter_add_(0, where, weight.reshape(-1))
        if recent is not None:
            distance = (to_end[:, None] - 1 - self._offsets).to(torch.float64)  # from the last token of the prompt
            units = torch.round(torch.exp2(-distance.clamp_min(0) / layout.half_life) * _UNITS).to(torch.int64) * known
            recent.view(-1).scatter_add_(0, where, units.view(-1)[:, None, None].expand(weight.shape).reshape(-1))

    def rows(self, slots: Sequence[int]) -> PendingRows:
        return PendingRows(self, self.ids[self._sent(np.asarray(slots, np.int64))])

    def _sent(self, values: Array) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)


class _Fetched:
    """Tensors that were asked for: copied to pinned memory behind what is queued, and waited for when somebody looks."""

    def __init__(self, device: Any, tensors: Sequence[Tensor]) -> None:
        self._event: Any = None
        if device.type == "cpu":
            self._host = list(tensors)
            return
        self._host = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True) for t in tensors]
        self._event = torch.cuda.Event()
        self._event.record()

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def arrays(self) -> list[Array]:
        if self._event is not None:
            self._event.synchronize()
        return [tensor.numpy() for tensor in self._host]


class PendingSums:
    def __init__(self, store: TorchStore, counts: Tensor, covered: Tensor, recent: Tensor | None) -> None:
        self._shape = (store.layout.layers, store.layout.experts)
        self._fetched = _Fetched(store.device, [t for t in (counts, covered, recent) if t is not None])

    def get(self) -> Sums:
        counts, covered, *rest = self._fetched.arrays()
        recent = rest[0].reshape(-1, *self._shape) if rest else None
        if recent is not None and recent.dtype == np.int64:
            recent = recent / _UNITS
        return Sums(counts.reshape(-1, *self._shape), covered, recent)


class PendingRows:
    def __init__(self, store: TorchStore, rows: Tensor) -> None:
        self._fetched = _Fetched(store.device, [rows])

    def get(self) -> Array:
        return self._fetched.arrays()[0]


def fetch(device: Any, tensors: Sequence[Tensor]) -> _Fetched:
    return _Fetched(device, tensors)


def _zeros_on(device: Any) -> Any:
    return lambda shape, dtype: torch.zeros(shape, dtype=dtype, device=device)


def _columns(row: int, end: End, size: int) -> Array:
    count = -(-end.tokens // size)
    out = np.empty((4, count), np.int64)
    out[0] = np.asarray(end.blocks, np.int64)[:count]
    out[1] = row
    starts = np.arange(count, dtype=np.int64) * size
    out[2] = np.minimum(size, end.tokens - starts)
    out[3] = end.tokens - starts
    return out
