"""Counts of prompts that end: sums over their blocks, with plain operations. Used on a CPU, and where the
kernels of device_sums.py cannot run; those are tested against it.

With ids per slot, weights of recent tokens are integer multiples of 2^−40 from one table, so that sums do not
depend on the order of additions or on the implementation of 2^x. With counts per block, the store holds
floats, which are summed as doubles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from .fetched import Tensor, fetched, sent
from .layout import Layout
from .store import Array, End, Sums

UNITS: Final = 2.0**40
# Tokens summed at once; limits the memory of a sum (25 MiB of indices at 48 layers and top 8).
_CHUNK_TOKENS: Final = 8192


@dataclass(frozen=True, slots=True)
class Sources:
    """Inputs of the sums. With ids per slot: ids, known flags, None. With counts per block: counts, numbers
    of known tokens, and recent counts or None."""

    values: Tensor
    known: Tensor
    recent: Tensor | None


@dataclass(frozen=True, slots=True)
class Targets:
    """Outputs: [requests, cells], [requests], and [requests, cells] or None. They are views of one buffer, so
    that one copy transfers all."""

    counts: Tensor
    covered: Tensor
    recent: Tensor | None


class PlainSums:
    def __init__(self, layout: Layout, device: Any, sources: Sources) -> None:
        self.layout, self.device, self.sources = layout, device, sources
        self.cells = layout.layers * layout.experts
        self.weights = None if layout.half_life is None or layout.form == "blocks" else sent(weight_table(layout.half_life), device)
        self._layer_cell = (torch.arange(layout.layers, device=device) * layout.experts)[None, :, None]
        self._offsets = torch.arange(layout.block_size, device=device)

    def start(self, ends: Sequence[End]) -> PlainPendingSums:
        layout = self.layout
        recent_type = None if layout.half_life is None else torch.int64 if layout.form == "slots" else torch.float64
        out = _Buffer(len(ends), self.cells, recent_type, self.device)
        columns = np.concatenate([np.zeros((4, 0), np.int64), *(_columns(row, end, layout) for row, end in enumerate(ends))], axis=1)
        if columns.shape[1] > 0:
            self._add(columns, out.targets)
        return PlainPendingSums((layout.layers, layout.experts), out, self.device)

    def _add(self, columns: Array, targets: Targets) -> None:
        all_columns = sent(columns, self.device)
        chunk = max(1, _CHUNK_TOKENS // self.layout.block_size)
        add = self._add_slots if self.layout.form == "slots" else self._add_blocks
        for first in range(0, columns.shape[1], chunk):
            add(all_columns[:, first : first + chunk], targets)

    def _add_blocks(self, part: Tensor, to: Targets) -> None:
        block, request, _, factor = part
        values = self.sources
        to.counts.index_add_(0, request, values.values[block].view(len(block), -1).to(torch.int32))
        to.covered.index_add_(0, request, values.known[block].to(torch.int32))
        if to.recent is not None and values.recent is not None:
            weighed = values.recent[block].view(len(block), -1).to(torch.float64) * factor.view(torch.float64)[:, None]
            to.recent.index_add_(0, request, weighed)

    def _add_slots(self, part: Tensor, to: Targets) -> None:
        layout = self.layout
        block, request, tokens, to_end = part
        slots = block[:, None] * layout.block_size + self._offsets  # [blocks of the chunk, block size]
        known = self.sources.known[slots].to(torch.int32) * (self._offsets < tokens[:, None])
        to.covered.index_add_(0, request, known.sum(1, dtype=torch.int32))
        where = self.sources.values[slots.view(-1)].to(torch.int64)
        real = (where >= 0) & (where < layout.experts)
        where.clamp_(0, layout.experts - 1).add_(self._layer_cell)
        where += (request * self.cells)[:, None].expand(slots.shape).reshape(-1)[:, None, None]
        weight = known.view(-1)[:, None, None] * real
        where = where.view(-1)
        to.counts.view(-1).scatter_add_(0, where, weight.reshape(-1))
        if to.recent is not None and self.weights is not None:
            distance = (to_end[:, None] - 1 - self._offsets).clamp(0, len(self.weights) - 1)  # from the last token of the prompt
            units = self.weights[distance] * known
            to.recent.view(-1).scatter_add_(0, where, (units.view(-1)[:, None, None] * real).view(-1))


class _Buffer:
    def __init__(self, requests: int, cells: int, recent_type: Any, device: Any) -> None:
        self.requests, self.recent_type = requests, recent_type
        self.recent_bytes = 0 if recent_type is None else requests * cells * 8
        count_bytes = requests * cells * 4
        self.whole = torch.zeros(self.recent_bytes + count_bytes + requests * 4, dtype=torch.uint8, device=device)
        recent, counts, covered = self.whole.split([self.recent_bytes, count_bytes, requests * 4])
        self.targets = Targets(
            counts.view(torch.int32).view(requests, cells),
            covered.view(torch.int32),
            None if recent_type is None else recent.view(recent_type).view(requests, cells),
        )


class PlainPendingSums:
    def __init__(self, shape: tuple[int, int], out: _Buffer, device: Any) -> None:
        self._shape, self._out = shape, out
        self._fetched = fetched(device, out.whole)

    def get(self) -> Sums:
        whole, requests, recent_bytes = self._fetched.array(), self._out.requests, self._out.recent_bytes
        rest = whole[recent_bytes:].view(np.int32)
        counts = rest[: len(rest) - requests].reshape(requests, *self._shape)
        recent: Array | None = None
        if self._out.recent_type is not None:
            recent = whole[:recent_bytes].view(np.float64 if self._out.recent_type == torch.float64 else np.int64).reshape(counts.shape)
            recent = recent / UNITS if recent.dtype == np.int64 else recent
        return Sums(counts, rest[len(rest) - requests :], recent)


def weight_table(half_life: float) -> Array:
    """Weight of a token by its distance from the last token of the prompt. The final entry, 0, is for all
    larger distances."""
    beyond = int(np.ceil(41 * half_life)) + 1
    return np.append(np.rint(np.exp2(-np.arange(beyond) / half_life) * UNITS).astype(np.int64), 0)


def _columns(row: int, end: End, layout: Layout) -> Array:
    """One column per block of a prompt: block, request, number of the block's tokens in the prompt, and
    tokens from the block's start to the prompt's end. With counts per block, the last row is instead the
    factor of the block's recent counts, as the bits of a double."""
    size = layout.block_size
    count = -(-end.tokens // size)
    out = np.empty((4, count), np.int64)
    out[0] = np.asarray(end.blocks, np.int64)[:count]
    out[1] = row
    to_end = end.tokens - np.arange(count, dtype=np.int64) * size
    out[2] = np.minimum(size, to_end)
    out[3] = to_end if layout.form == "slots" else np.exp2(-(to_end - size) / (layout.half_life or 1)).view(np.int64)
    return out
