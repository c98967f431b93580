"""Sums by the kernel of sum_kernel.py: one launch, which reads its table from pinned memory of the host and writes
the results there. Nothing is copied, since on the host a copy takes longer than the launch.

The memory holds one row per request, then the table. A row is made of 32-bit words: covered tokens, counts, recent
counts (if any)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .fetched import Tensor, sent
from .layout import Layout
from .pinned import Pinned, Pool
from .store import Array, End, Sums
from .sum_kernel import SumSlots
from .torch_sums import Sources, weight_table


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
        self.has_recent = layout.half_life is not None
        self.row_words = 1 + self.cells * (2 if self.has_recent else 1)
        weights = None if layout.half_life is None else sent(weight_table(layout.half_life), device)
        self._sum = SumSlots(layout, sources.ids, sources.known, weights)
        self.pool = Pool(device)
        self._capacity = 0
        self._totals: Totals | None = None

    def start(self, ends: Sequence[End]) -> PendingSums:
        requests, size = len(ends), self.layout.block_size
        table, at, longest = array("i"), 2 * requests, 0
        for end in ends:
            table.extend((at, end.tokens))
            at += -(-end.tokens // size)
            longest = max(longest, end.tokens)
        for end in ends:
            table.extend(end.blocks[: -(-end.tokens // size)])
        table_at = requests * self.row_words
        host = self.pool.take(table_at + at)
        host.items[table_at : table_at + at] = table
        if requests > 0:
            self._sum(requests, longest, self._reserved(requests), host, table_at, self.row_words)
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
                zeros(cells, torch.int64) if self.has_recent else None,
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
        shape = (requests, of.layout.layers, of.layout.experts)
        recent: Array | None = rows[:, 1 + of.cells :].reshape(shape) if of.has_recent else None
        return Sums(rows[:, 1 : 1 + of.cells].reshape(shape), rows[:, 0], recent)

    def __del__(self) -> None:
        """Also if the sums are never read: the device still writes them."""
        host, self._host = self._host, None
        if host is not None:
            self._of.pool.give(host)
