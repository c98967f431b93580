"""Sums over the blocks of prompts in one launch. The table holds, for each request, the position of its first
block in the table and its number of tokens, then the blocks of all requests. Table and results are in pinned
memory of the host.

A program counts a part of one prompt in one layer in registers and adds it to the totals; the last program of a
layer moves the totals to the output and leaves zeros, so nothing must be cleared before a launch."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .launch import Launcher
from .layout import Layout
from .torch_sums import UNIT_SHIFT

_TOKENS = 128  # counted at once
_MIN_PART = 256  # tokens per program
_MAX_PARTS = 64  # of a prompt: more would only add to the same totals


@triton.jit(do_not_specialize=["table_at", "part_tokens", "last_weight"], do_not_specialize_on_alignment=["host"])
def _sum_slots(
    ids, known, weights, last_weight, totals, recent_totals, covered_totals, arrived, host, table_at, row_words,
    part_tokens, experts, layers,
    SIZE: tl.constexpr, TOP_K: tl.constexpr, K: tl.constexpr, BINS: tl.constexpr, TOKENS: tl.constexpr, RECENT: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    part, layer, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    table = host + table_at
    first = tl.load(table + 2 * request)
    tokens = tl.load(table + 2 * request + 1)
    parts = tl.maximum(tl.cdiv(tokens, part_tokens), 1)
    if part >= parts:
        return
    end = tl.minimum(tokens, (part + 1) * part_tokens)
    rank = tl.arange(0, K)
    cell = tl.arange(0, BINS)
    is_expert = cell < experts  # the bin after them takes what is not counted
    cells = (request * layers + layer) * experts
    total = tl.zeros([BINS], tl.int32)
    seen = tl.zeros([TOKENS], tl.int32)
    for start in range(part * part_tokens, end, TOKENS):
        token = start + tl.arange(0, TOKENS)
        inside = token < end
        block = tl.load(table + first + token // SIZE, mask=inside, other=0).to(tl.int64)
        slot = block * SIZE + token % SIZE
        counted = inside & (tl.load(known + slot, mask=inside, other=0) != 0)
        seen += counted.to(tl.int32)
        here = counted[:, None] & (rank < TOP_K)[None, :]
        expert = tl.load(ids + (slot * layers + layer)[:, None] * TOP_K + rank[None, :], mask=here, other=0).to(tl.int32)
        here = here & (expert >= 0) & (expert < experts)
        total += tl.histogram(tl.reshape(tl.where(here, expert, experts), [TOKENS * K]), BINS)
        if RECENT:
            units = tl.load(weights + tl.minimum(tokens - 1 - token, last_weight), mask=counted, other=0)
            heavy = here & (units != 0)[:, None]
            tl.atomic_add(recent_totals + cells + expert, tl.broadcast_to(units[:, None], [TOKENS, K]), mask=heavy, sem="relaxed")
    tl.atomic_add(totals + cells + cell, total, mask=is_expert & (total > 0), sem="relaxed")
    if layer == 0:
        tl.atomic_add(covered_totals + request, tl.sum(seen), sem="relaxed")
    tl.debug_barrier()  # all threads have added before one of them says so
    before = tl.atomic_add(arrived + request * layers + layer, 1, sem="acq_rel")
    if before == parts - 1:
        row = host + request * row_words
        out = row + 1 + layer * experts + cell
        tl.store(out, tl.atomic_xchg(totals + cells + cell, tl.zeros([BINS], tl.int32), mask=is_expert), mask=is_expert)
        if RECENT:
            weighed = tl.atomic_xchg(recent_totals + cells + cell, tl.zeros([BINS], tl.int64), mask=is_expert)
            half: tl.constexpr = 1 << (SHIFT - 1)  # rounds half up
            tl.store(out + layers * experts, ((weighed + half) >> SHIFT).to(tl.int32), mask=is_expert)
        if layer == 0:
            tl.store(row, tl.atomic_xchg(covered_totals + request, 0))
        tl.atomic_xchg(arrived + request * layers + layer, 0)


class SumSlots:
    """weights: by distance from the end of a prompt, or None."""

    def __init__(self, layout: Layout, ids: Any, known: Any, weights: Any) -> None:
        self.layout = layout
        self._has_recent = weights is not None
        self._sources = (ids, known, weights, len(weights) - 1) if self._has_recent else (ids, known, ids, 0)
        self._launch = Launcher(
            _sum_slots, SIZE=layout.block_size, TOP_K=layout.top_k, K=triton.next_power_of_2(layout.top_k),
            BINS=triton.next_power_of_2(layout.experts + 1), TOKENS=_TOKENS, RECENT=self._has_recent,
            SHIFT=UNIT_SHIFT,
        )  # fmt: skip

    def __call__(self, requests: int, max_tokens: int, totals: Any, host: Any, table_at: int, row_words: int) -> None:
        """max_tokens: of the longest prompt. totals: zeros before and after. host and the rest: see
        device_sums.py."""
        part = max(_MIN_PART, -(-max_tokens // (_MAX_PARTS * _TOKENS)) * _TOKENS)
        layout, has_recent = self.layout, self._has_recent
        self._launch(
            (max(1, -(-max_tokens // part)), layout.layers, requests), *self._sources,
            totals.counts, totals.recent if has_recent else totals.counts, totals.covered, totals.arrived,
            host.words, table_at, row_words, part, layout.experts, layout.layers,
        )  # fmt: skip
