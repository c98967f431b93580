"""Counts of prompts that end: sums over their slots, with plain operations. Used on a CPU, and where the
kernel of device_sums.py cannot run; that is tested against it.

Weights of recent tokens are integer multiples of 2^−40 from one table, so that sums do not depend on the order of
additions or on the implementation of 2^x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from .fetched import Tensor, fetched, sent
from .layout import Layout
from .store import Array, End, Sums
from .wire import RECENT_UNITS

_BITS: Final = 40
# From multiples of 2^−40 to those of 1/256, which are sent.
UNIT_SHIFT: Final = _BITS - (RECENT_UNITS.bit_length() - 1)
# Tokens summed at once; limits the memory of a sum (25 MiB of indices at 48 layers and top 8).
_CHUNK_TOKENS: Final = 8192


@dataclass(frozen=True, slots=True)
class Sources:
    ids: Tensor
    known: Tensor


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
        self.weights = None if layout.half_life is None else sent(weight_table(layout.half_life), device)
        self._layer_cell = (torch.arange(layout.layers, device=device) * layout.experts)[None, :, None]
        self._offsets = torch.arange(layout.block_size, device=device)

    def start(self, ends: Sequence[End]) -> PlainPendingSums:
        layout = self.layout
        out = _Buffer(len(ends), self.cells, self.weights is not None, self.device)
        columns = np.concatenate([np.zeros((4, 0), np.int64), *(_columns(row, end, layout) for row, end in enumerate(ends))], axis=1)
        if columns.shape[1] > 0:
            self._add(columns, out.targets)
        return PlainPendingSums((layout.layers, layout.experts), out, self.device)

    def _add(self, columns: Array, targets: Targets) -> None:
        all_columns = sent(columns, self.device)
        chunk = max(1, _CHUNK_TOKENS // self.layout.block_size)
        for first in range(0, columns.shape[1], chunk):
            self._add_part(all_columns[:, first : first + chunk], targets)

    def _add_part(self, part: Tensor, to: Targets) -> None:
        layout = self.layout
        block, request, tokens, to_end = part
        slots = block[:, None] * layout.block_size + self._offsets  # [blocks of the chunk, block size]
        known = self.sources.known[slots].to(torch.int32) * (self._offsets < tokens[:, None])
        to.covered.index_add_(0, request, known.sum(1, dtype=torch.int32))
        where = self.sources.ids[slots.view(-1)].to(torch.int64)
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
    def __init__(self, requests: int, cells: int, has_recent: bool, device: Any) -> None:
        self.requests = requests
        self.recent_bytes = requests * cells * 8 if has_recent else 0
        count_bytes = requests * cells * 4
        self.whole = torch.zeros(self.recent_bytes + count_bytes + requests * 4, dtype=torch.uint8, device=device)
        recent, counts, covered = self.whole.split([self.recent_bytes, count_bytes, requests * 4])
        self.targets = Targets(
            counts.view(torch.int32).view(requests, cells),
            covered.view(torch.int32),
            recent.view(torch.int64).view(requests, cells) if has_recent else None,
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
        if self._out.targets.recent is not None:
            weighed = whole[:recent_bytes].view(np.int64).reshape(counts.shape)
            recent = (weighed + (1 << UNIT_SHIFT - 1)) >> UNIT_SHIFT  # rounds half up
        return Sums(counts, rest[len(rest) - requests :], recent)


def weight_table(half_life: float) -> Array:
    """Weight of a token by its distance from the last token of the prompt. The final entry, 0, is for all
    larger distances."""
    beyond = int(np.ceil((_BITS + 1) * half_life)) + 1
    return np.append(np.rint(np.exp2(-np.arange(beyond) / half_life) * 2.0**_BITS).astype(np.int64), 0)


def _columns(row: int, end: End, layout: Layout) -> Array:
    """One column per block of a prompt: block, request, number of the block's tokens in the prompt, and
    tokens from the block's start to the prompt's end."""
    size = layout.block_size
    count = -(-end.tokens // size)
    out = np.empty((4, count), np.int64)
    out[0] = np.asarray(end.blocks, np.int64)[:count]
    out[1] = row
    out[3] = end.tokens - np.arange(count, dtype=np.int64) * size
    out[2] = np.minimum(size, out[3])
    return out
