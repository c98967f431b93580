"""Sums by the kernels of sum_kernel.py: one launch, which reads its table from pinned memory of the host and writes
the results there. Nothing is copied, since on the host a copy takes longer than the launch.

The memory holds one row per request, then the table, then the factors of the blocks' recent counts (64 bits each).
A row is made of 32-bit words: recent counts (64 bits each, if any), counts, covered tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .fetched import Tensor, sent
from .layout import Layout
from .pinned import Pinned, Pool
from .store import Array, End, Sums
from .sum_kernel import SumBlocks, SumSlots
from .torch_sums import UNITS, Sources, weight_table


@dataclass(frozen=True, slots=True)
class Totals:
    """Zeros between launches."""

    counts: Tensor
    recent: Tensor | None
    covered: Tensor
    arrived: Tensor


class DeviceSums:
    def __init__(self, layout: Layout, device: Any, sources: Sources) -> None:
        self.layout, self.device = layout, device
        self.cells = layout.layers * layout.experts
        has_recent, self._slots = layout.half_life is not None, layout.form == "slots"
        self.recent_words = 2 * self.cells if has_recent else 0
        used = self.recent_words + self.cells + 1
        self.row_words = used + used % 2
        self.recent_type = None if not has_recent else np.int64 if self._slots else np.float64
        self._has_weights = has_recent and self._slots
        weights = sent(weight_table(layout.half_life), device) if self._slots and layout.half_life is not None else None
        self._sum_slots = SumSlots(layout, sources.values, sources.known, weights) if self._slots else None
        self._sum_blocks = None if self._slots else SumBlocks(layout, sources.values, sources.known, sources.recent)
        self.pool = Pool(device)
        self._capacity = 0
        self._totals: Totals | None = None

    def start(self, ends: Sequence[End]) -> PendingSums:
        requests, size = len(ends), self.layout.block_size
        table, at = array("i"), 2 * requests
        for end in ends:
            table.extend((at, end.tokens))
            at += -(-end.tokens // size)
        for end in ends:
            table.extend(end.blocks[: -(-end.tokens // size)])
        table_at = requests * self.row_words
        factors_at = table_at + at + at % 2
        host = self.pool.take(factors_at + 2 * (at - 2 * requests))
        host.items[table_at : table_at + at] = table
        if self._sum_blocks is not None:
            if self.layout.half_life is not None:
                _write_factors(host.values[factors_at:].view(np.float64), ends, size, self.layout.half_life)
            if requests > 0:
                self._sum_blocks(requests, host, table_at, self.recent_words, factors_at // 2, self.row_words)
        elif self._sum_slots is not None and requests > 0:
            longest = max(end.tokens for end in ends)
            self._sum_slots(requests, longest, self._reserved(requests), host, table_at, self.recent_words, self.row_words)
        host.queued()
        return PendingSums(host, requests, self)

    def _reserved(self, requests: int) -> Totals:
        """One launch at a time uses them: all are queued on the stream of the steps."""
        if self._totals is None or requests > self._capacity:
            self._capacity = max(4, 1 << (requests - 1).bit_length())
            cells = self._capacity * self.cells

            def zeros(count: int, dtype: Any) -> Tensor:
                return torch.zeros(count, dtype=dtype, device=self.device)

            self._totals = Totals(
                zeros(cells, torch.int32),
                zeros(cells, torch.int64) if self._has_weights else None,
                zeros(self._capacity, torch.int32),
                zeros(self._capacity * self.layout.layers, torch.int32),
            )
        return self._totals


class PendingSums:
    def __init__(self, host: Pinned, requests: int, of: DeviceSums) -> None:
        self._host: Pinned | None = host
        self._requests, self._of = requests, of

    def get(self) -> Sums:
        """Once."""
        host, of, requests = self._host, self._of, self._requests
        assert host is not None
        host.wait()
        rows = host.values[: requests * of.row_words].reshape(requests, of.row_words).copy()
        self.__del__()
        cells, at = of.cells, of.recent_words
        counts = rows[:, at : at + cells].reshape(requests, of.layout.layers, of.layout.experts)
        recent: Array | None = None
        if of.recent_type is not None:
            recent = rows[:, :at].view(of.recent_type).reshape(counts.shape)
            recent = recent * (1 / UNITS) if of.recent_type is np.int64 else recent
        return Sums(counts, rows[:, at + cells], recent)

    def __del__(self) -> None:
        """Also if the sums are never read: the device still writes them."""
        host, self._host = self._host, None
        if host is not None:
            self._of.pool.give(host)


def _write_factors(out: Array, ends: Sequence[End], size: int, half_life: float) -> None:
    at = 0
    for end in ends:
        count = -(-end.tokens // size)
        after = end.tokens - size * np.arange(1, count + 1)
        out[at : at + count] = np.exp2(-after / half_life)
        at += count
