"""The store on the device. Nothing here waits for the device: sizes come from the host, padding goes to a
scratch row instead of being masked out, and results are copied to pinned memory with an event. `scatter` may
be recorded in a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .fetched import Fetched, Tensor, sent
from .layout import Layout
from .store import Array, End
from .torch_sums import PendingSums, Sources, Summing


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
        sources = Sources(self.ids, self.known, None) if layout.form == "slots" else Sources(self.counts, self.covered, self.recent)
        self._summing = Summing(layout, self.device, sources)

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
        index = sent(np.asarray(blocks, np.int64), self.device)
        if self.layout.form == "slots":
            self.known[: self.scratch].view(-1, self.layout.block_size).index_fill_(0, index, 0)
            return
        for tensor in self._tensors():
            tensor.index_fill_(0, index, 0)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if not pairs:
            return
        index = sent(np.asarray(pairs, np.int64), self.device)
        for tensor in self._tensors():
            slots = self.layout.form == "slots"
            whole = tensor[: self.scratch].view(-1, self.layout.block_size, *tensor.shape[1:]) if slots else tensor
            whole.index_copy_(0, index[:, 1], whole.index_select(0, index[:, 0]))

    def scatter(self, slots: Tensor, ids: Tensor) -> None:
        # masked_fill instead of where: its scalar is a kernel argument, not a tensor to be copied while a
        # graph is recorded
        at = slots.to(torch.int64).masked_fill(slots < 0, self.scratch)
        if self.layout.form == "slots":
            self.ids.index_copy_(0, at, ids.to(self.ids.dtype))
            self.known.index_fill_(0, at, 1)
            return
        layout = self.layout
        block = torch.div(at, layout.block_size, rounding_mode="floor")
        cells = layout.layers * layout.experts
        ids = ids.to(torch.int64)  # otherwise 256 would be truncated to a byte in the comparison
        where = (block * cells)[:, None, None] + self._layer_cell + ids
        where.masked_fill_((ids < 0) | (ids >= layout.experts), layout.blocks * cells)  # ids that are not experts go to the scratch block
        where = where.view(-1)
        self.counts.view(-1).scatter_add_(0, where, self._one.expand(where.shape))
        self.covered.scatter_add_(0, block, self._one16.expand(block.shape))
        if self.recent is not None:
            offset = at - block * layout.block_size
            weight = torch.exp2((offset + 1 - layout.block_size) / layout.half_life)
            weight = weight[:, None, None].expand(ids.shape).reshape(-1)
            self.recent.view(-1).scatter_add_(0, where, weight)

    def sums(self, ends: Sequence[End]) -> PendingSums:
        """Launches the sums on the current stream, after the step's scatter; `get` waits for the result."""
        return self._summing.start(ends)

    def rows(self, slots: Sequence[int]) -> PendingRows:
        return PendingRows(self.ids[sent(np.asarray(slots, np.int64), self.device)], self.device)


class PendingRows:
    def __init__(self, rows: Tensor, device: Any) -> None:
        self._fetched = Fetched(device, rows)

    def get(self) -> Array:
        return self._fetched.array()


def _zeros_on(device: Any) -> Any:
    return lambda shape, dtype: torch.zeros(shape, dtype=dtype, device=device)
