"""The store on the device. Nothing here waits for the device: sizes come from the host, padding goes to a
scratch slot or is masked on the device, and results come to pinned memory with an event. `scatter` and
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
    from .scatter_kernel import StepKernels


class TorchStore:
    def __init__(self, layout: Layout, device: Any, kernels: bool | None = None) -> None:
        """kernels: use the Triton kernels; by default on a GPU that has Triton."""
        self.layout, self.device = layout, torch.device(device)
        id_type = torch.uint8 if layout.id_bytes == 1 else torch.int16
        self.scratch = layout.slots
        self.ids: Tensor = torch.zeros((layout.slots + 1, layout.layers, layout.top_k), dtype=id_type, device=self.device)
        self.known: Tensor = torch.zeros(layout.slots + 1, dtype=torch.uint8, device=self.device)
        self._pool = Pool(self.device)
        self.kernels = has_triton(self.device) if kernels is None else kernels
        self._sums: PlainSums | DeviceSums = self._device_sums() if self.kernels else self.plain_sums()
        self._kernels: StepKernels | None = self._step_kernels() if self.kernels else None

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.ids, self.known))

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
                self.forget([self.layout.blocks - 1])
                self.sums([End([0], 1)]).get()
            log.info("kernels are ready after %d ms", round(1e3 * (time.perf_counter() - began)))
        except Exception as error:
            self.kernels = False
            self._sums = self.plain_sums()
            log.warning("the kernels cannot be used, plain operations are slower: %s: %s", type(error).__name__, error)

    def forget(self, blocks: Sequence[int]) -> None:
        if self.kernels and self._kernels is not None:
            host = self._pool.take(len(blocks))
            host.items[: len(blocks)] = array("i", blocks)
            self._kernels.clear(host.words, len(blocks))
            host.queued()
            self._pool.give(host)
            return
        self._by_block(self.known).index_fill_(0, sent(np.asarray(blocks, np.int64), self.device), 0)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if not pairs:
            return
        index = sent(np.asarray(pairs, np.int64), self.device)
        for tensor in (self.ids, self.known):
            whole = self._by_block(tensor)
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
        self.ids.index_copy_(0, at, ids.to(self.ids.dtype))
        self.known.index_fill_(0, at, 1)

    def sums(self, ends: Sequence[End]) -> Deferred:
        """Launches after the step's scatter; results are read after an event."""
        return self._sums.start(ends)

    def rows(self, slots: Sequence[int]) -> PendingRows:
        return PendingRows(fetched(self.device, self.ids[sent(np.asarray(slots, np.int64), self.device)]))

    def plain_sums(self) -> PlainSums:
        return PlainSums(self.layout, self.device, Sources(self.ids, self.known))

    def _device_sums(self) -> DeviceSums:
        from .device_sums import DeviceSums

        return DeviceSums(self.layout, self.device, Sources(self.ids, self.known))

    def _step_kernels(self) -> StepKernels:
        from .scatter_kernel import StepKernels

        return StepKernels(self.layout, self.ids, self.known)

    def _by_block(self, tensor: Tensor) -> Tensor:
        return tensor[: self.scratch].view(-1, self.layout.block_size, *tensor.shape[1:])


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
