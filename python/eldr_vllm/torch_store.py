"""The store on the device. Nothing here waits for the device: sizes come from the host, padding goes to a
scratch row or is masked on the device, and results come to pinned memory with an event. `scatter` and
`scatter_layers` may be recorded in a CUDA graph."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import log
from .fetched import Fetched, Tensor, fetched, sent
from .layout import Layout
from .pinned import Pool
from .store import Array, Deferred, End
from .torch_sums import PlainSums, Sources

if TYPE_CHECKING:  # it needs Triton
    from .device_sums import DeviceSums
    from .scatter_kernel import BlockKernels, SlotKernels


class TorchStore:
    def __init__(self, layout: Layout, device: Any, kernels: bool | None = None) -> None:
        """kernels: use the Triton kernels; by default on a GPU that has Triton."""
        self.layout, self.device = layout, torch.device(device)
        rows = (layout.layers, layout.experts)
        if layout.form == "slots":
            slots = layout.blocks * layout.block_size
            self.scratch = slots
            self.ids = self._zeros((slots + 1, layout.layers, layout.top_k), torch.uint8 if layout.id_bytes == 1 else torch.int16)
            self.known = self._zeros((slots + 1,), torch.uint8)
        else:
            self.scratch = layout.blocks * layout.block_size  # the first slot of the scratch block
            count_type = torch.uint8 if layout.count_bytes == 1 else torch.int16
            self._words, self.counts = self._in_words((layout.blocks + 1, *rows), count_type)
            self._covered_words, self.covered = self._in_words((layout.blocks + 1,), torch.int16)
            self.recent = None if layout.half_life is None else self._zeros((layout.blocks + 1, *rows), torch.float32)
            self._one = torch.ones((), dtype=count_type, device=self.device)
            self._one16 = torch.ones((), dtype=torch.int16, device=self.device)
            self._block_weights: Tensor = None
            if layout.half_life is not None:
                weights = np.exp2((np.arange(layout.block_size) + 1 - layout.block_size) / layout.half_life)
                self._block_weights = sent(weights.astype(np.float32), self.device)
        self._layer_cell = (torch.arange(layout.layers, device=self.device) * layout.experts)[None, :, None]
        self._pool = Pool(self.device)
        self.kernels = has_triton(self.device) if kernels is None else kernels
        self._sums: PlainSums | DeviceSums = self._device_sums() if self.kernels else self.plain_sums()
        self._kernels: SlotKernels | BlockKernels | None = self._step_kernels() if self.kernels else None

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def _tensors(self) -> list[Tensor]:
        if self.layout.form == "slots":
            return [self.ids, self.known]
        return [tensor for tensor in (self.counts, self.covered, self.recent) if tensor is not None]

    def warm(self) -> None:
        """Compiles the kernels, so that neither the first hand-off nor the recording of graphs has to. If that
        fails, plain operations are used."""
        if not self.kernels:
            return
        began = time.perf_counter()
        try:
            slots = torch.full((1,), -1, dtype=torch.int64, device=self.device)
            ids = torch.zeros((self.layout.layers, self.layout.top_k), dtype=torch.int32, device=self.device)
            for _ in range(2):  # the first launch compiles, later ones take another path
                self.scatter_layers(slots, ids, 1, 0, 1)
                self.reset([self.layout.blocks - 1])
                self.sums([End([0], 1)]).get()
            log.info("kernels are ready after %d ms", round(1e3 * (time.perf_counter() - began)))
        except Exception as error:
            self.kernels = False
            self._sums = self.plain_sums()
            log.warning("the kernels cannot be used, plain operations are slower: %s: %s", type(error).__name__, error)

    def reset(self, blocks: Sequence[int]) -> None:
        if not blocks:
            return
        if self.kernels and self._kernels is not None:
            host = self._pool.take(len(blocks))
            host.items[: len(blocks)] = array("i", blocks)
            self._kernels.clear(host.words, len(blocks))
            host.queued()
            self._pool.give(host)
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

    def scatter_layers(self, slots: Tensor, ids: Tensor, rows: int, first: int, tokens: int) -> None:
        """Like `scatter`, by a kernel. ids: [layers · rows, top_k], of which `tokens` rows from `first` belong to
        the slots."""
        assert self._kernels is not None
        self._kernels.scatter(slots, ids, rows, first, tokens)

    def scatter(self, slots: Tensor, ids: Tensor) -> None:
        """slots: [tokens], negative for padding; ids: [tokens, layers, top_k]."""
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
            weight = self._block_weights[at - block * layout.block_size]
            weight = weight[:, None, None].expand(ids.shape).reshape(-1)
            self.recent.view(-1).scatter_add_(0, where, weight)

    def sums(self, ends: Sequence[End]) -> Deferred:
        """Launches after the step's scatter; results are read after an event."""
        return self._sums.start(ends)

    def rows(self, slots: Sequence[int]) -> PendingRows:
        return PendingRows(fetched(self.device, self.ids[sent(np.asarray(slots, np.int64), self.device)]))

    def plain_sums(self) -> PlainSums:
        return PlainSums(self.layout, self.device, self._sources())

    def _device_sums(self) -> DeviceSums:
        from .device_sums import DeviceSums

        return DeviceSums(self.layout, self.device, self._sources())

    def _step_kernels(self) -> SlotKernels | BlockKernels:
        from .scatter_kernel import BlockKernels, SlotKernels

        if self.layout.form == "slots":
            return SlotKernels(self.layout, self.ids, self.known)
        return BlockKernels(self.layout, self.counts, self._words, self.covered, self._covered_words, self.recent, self._block_weights)

    def _sources(self) -> Sources:
        return Sources(self.ids, self.known, None) if self.layout.form == "slots" else Sources(self.counts, self.covered, self.recent)

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def _in_words(self, shape: tuple[int, ...], dtype: Any) -> tuple[Tensor, Tensor]:
        """A tensor of small integers, and before it the 32-bit words that hold it."""
        count = int(np.prod(shape))
        per_word = 4 // dtype.itemsize
        words = self._zeros((-(-count // per_word),), torch.int32)
        return words, words.view(dtype)[:count].view(shape)


class PendingRows:
    def __init__(self, pending: Fetched) -> None:
        self._pending = pending

    def get(self) -> Array:
        return self._pending.array()


def has_triton(device: Any) -> bool:
    if device.type != "cuda":
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
