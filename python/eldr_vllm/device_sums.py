"""Sums by the kernels of sum_kernel.py. They run on a stream of their own beside the engine's sampling, so
that a step is not lengthened by them: one copy to the device, one launch, one copy back. Buffers are kept.

The next step may reuse the blocks that are being summed: `join` lets its work wait on the device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import sum_kernel
from .fetched import Downloads, Fetched, Tensor, Uploads, sent
from .layout import Layout
from .store import Array, End, Sums
from .torch_sums import UNITS, Sources, weight_table


@dataclass(frozen=True, slots=True)
class Totals:
    """Zeros between launches."""

    counts: Tensor
    recent: Tensor | None
    covered: Tensor
    arrived: Tensor


class Out:
    """One row per request, of 32-bit words: recent counts (64 bits each, if any), counts, covered tokens. One
    copy fetches all. `counts` and `recent` point to the first row's."""

    def __init__(self, requests: int, cells: int, recent_type: Any, device: Any) -> None:
        self.recent_words = 0 if recent_type is None else 2 * cells
        used = self.recent_words + cells + 1
        self.row_words = used + used % 2
        self.words = torch.zeros(requests * self.row_words, dtype=torch.int32, device=device)
        self.recent = None if recent_type is None else self.words.view(recent_type)
        self.counts = self.words[self.recent_words :]


class DeviceSums:
    def __init__(self, layout: Layout, device: Any, sources: Sources) -> None:
        self.layout, self.device, self.sources = layout, device, sources
        self.cells = layout.layers * layout.experts
        slots = layout.form == "slots"
        self._recent_type = None if layout.half_life is None else torch.int64 if slots else torch.float64
        self._weights = sent(weight_table(layout.half_life), device) if slots and layout.half_life is not None else None
        self._uploads, self._downloads = Uploads(device), Downloads(device)
        self._side = Side(device)
        self._capacity = 0
        self._totals: Totals | None = None
        self._out: Out | None = None

    def start(self, ends: Sequence[End]) -> PendingSums:
        requests, layout = len(ends), self.layout
        with self._side.begin():
            out = self._reserved(requests)
            if requests > 0:
                values, factors_at = _table(ends, layout)
                table = self._uploads.send(values)
                if layout.form == "slots":
                    longest = max(end.tokens for end in ends)
                    ids, known = self.sources.values, self.sources.known
                    sum_kernel.sum_slots(layout, ids, known, self._weights, table, requests, longest, self._totals, out)
                else:
                    factors = None if factors_at is None else table[factors_at:].view(torch.float64)
                    counts, known, recent = self.sources.values, self.sources.known, self.sources.recent
                    sum_kernel.sum_blocks(layout, counts, known, recent, table, factors, requests, out)
            pending = self._downloads.fetch(out.words[: requests * out.row_words])
            self._side.end()
        return PendingSums(pending, requests, out, (layout.layers, layout.experts))

    def join(self) -> None:
        """Work queued from now on waits for the sums on the device."""
        self._side.join()

    def _reserved(self, requests: int) -> Out:
        if self._out is None or self._totals is None or requests > self._capacity:
            self._capacity = max(4, 1 << (requests - 1).bit_length() if requests > 0 else 1)
            shape = self._capacity * self.cells

            def zeros(count: int, dtype: Any) -> Tensor:
                return torch.zeros(count, dtype=dtype, device=self.device)

            self._totals = Totals(
                zeros(shape, torch.int32),
                zeros(shape, torch.int64) if self._weights is not None else None,
                zeros(self._capacity, torch.int32),
                zeros(self._capacity * self.layout.layers, torch.int32),
            )
            self._out = Out(self._capacity, self.cells, self._recent_type, self.device)
        return self._out


class PendingSums:
    def __init__(self, fetched: Fetched, requests: int, out: Out, shape: tuple[int, int]) -> None:
        self._fetched, self._requests, self._out, self._shape = fetched, requests, out, shape

    def get(self) -> Sums:
        rows = self._fetched.array().reshape(self._requests, self._out.row_words)
        cells, at = self._shape[0] * self._shape[1], self._out.recent_words
        counts = rows[:, at : at + cells].reshape(self._requests, *self._shape)
        recent: Array | None = None
        if self._out.recent is not None:
            whole = self._out.recent.dtype == torch.int64
            recent = rows[:, :at].view(np.int64 if whole else np.float64).reshape(counts.shape)
            recent = recent / UNITS if whole else recent
        return Sums(counts, rows[:, at + cells], recent)


class Side:
    """A stream beside the current one; without effect on a CPU."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream: Any = None
        self._running = False
        if device.type != "cpu":
            self._stream = torch.cuda.Stream(device)
            self._ready, self._done = torch.cuda.Event(), torch.cuda.Event()

    def begin(self) -> AbstractContextManager[Any]:
        """Work in this context runs after what is queued on the current stream."""
        if self._stream is None:
            return nullcontext()
        self._ready.record(torch.cuda.current_stream(self._device))
        self._stream.wait_event(self._ready)
        context: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return context

    def end(self) -> None:
        if self._stream is not None:
            self._done.record(self._stream)
            self._running = True

    def join(self) -> None:
        if self._running:
            self._running = False
            torch.cuda.current_stream(self._device).wait_event(self._done)


def _table(ends: Sequence[End], layout: Layout) -> tuple[Array, int | None]:
    """The kernels' table as 32-bit integers, and where the factors of the blocks' recent counts begin in it
    (64 bits each, aligned)."""
    size = layout.block_size
    counts = [-(-end.tokens // size) for end in ends]
    at = 2 * len(ends)
    words = at + sum(counts)
    words += words % 2
    half_life = layout.half_life if layout.form == "blocks" else None
    out = np.empty(words + (0 if half_life is None else 2 * sum(counts)), np.int32)
    factors = out[words:].view(np.float64)
    for request, (end, count) in enumerate(zip(ends, counts, strict=True)):
        out[2 * request : 2 * request + 2] = at, end.tokens
        out[at : at + count] = end.blocks[:count]
        if half_life is not None:
            after = end.tokens - size * np.arange(1, count + 1)
            first = at - 2 * len(ends)
            factors[first : first + count] = np.exp2(-after / half_life)
        at += count
    return out, None if half_life is None else words
