"""Sums over the blocks of prompts in one launch. The table holds, for each request, the position of its first
block in the table and its number of tokens, then the blocks of all requests. Table and results are in pinned
memory of the host.

Ids per slot: a program counts a part of one prompt in one layer in registers and adds it to the totals; the
last program of a layer moves the totals to the output and leaves zeros, so nothing must be cleared before a
launch. Counts per block: a program adds up a tile of cells over all blocks of a prompt, in order."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .launch import Launcher
from .layout import Layout

_TOKENS = 128  # counted at once
_MIN_PART = 256  # tokens per program
_MAX_PARTS = 64  # of a prompt: more would only add to the same totals
_TILE = 128
_BLOCKS = 16  # added at once


@triton.jit(do_not_specialize=["table_at", "part_tokens", "last_weight"], do_not_specialize_on_alignment=["host", "recent"])
def _sum_slots(
    ids, known, weights, last_weight, totals, recent_totals, covered_totals, arrived, host, recent, table_at, counts_at, row_words,
    part_tokens, experts, layers,
    SIZE: tl.constexpr, TOP_K: tl.constexpr, K: tl.constexpr, BINS: tl.constexpr, TOKENS: tl.constexpr, RECENT: tl.constexpr,
):  # fmt: skip
    part, layer, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    table, counts = host + table_at, host + counts_at
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
        out = request * row_words + layer * experts
        done = tl.atomic_xchg(totals + cells + cell, tl.zeros([BINS], tl.int32), mask=is_expert)
        tl.store(counts + out + cell, done, mask=is_expert)
        if RECENT:
            units = tl.atomic_xchg(recent_totals + cells + cell, tl.zeros([BINS], tl.int64), mask=is_expert)
            tl.store(recent + request * (row_words // 2) + layer * experts + cell, units, mask=is_expert)
        if layer == 0:
            tl.store(counts + request * row_words + layers * experts, tl.atomic_xchg(covered_totals + request, 0))
        tl.atomic_xchg(arrived + request * layers + layer, 0)


@triton.jit(do_not_specialize=["table_at", "factors_at"], do_not_specialize_on_alignment=["host", "host_doubles"])
def _sum_blocks(
    values, known, block_recent, host, host_doubles, table_at, counts_at, factors_at, row_words, cells,
    SIZE: tl.constexpr, TILE: tl.constexpr, BLOCKS: tl.constexpr, RECENT: tl.constexpr,
):  # fmt: skip
    tile, request = tl.program_id(0), tl.program_id(1)
    table, counts, factors, recent = host + table_at, host + counts_at, host_doubles + factors_at, host_doubles
    first = tl.load(table + 2 * request)
    blocks = tl.cdiv(tl.load(table + 2 * request + 1), SIZE)
    cell = tile * TILE + tl.arange(0, TILE)
    inside = cell < cells
    total = tl.zeros([TILE], tl.int32)
    weighed = tl.zeros([TILE], tl.float64)
    seen = tl.zeros([BLOCKS], tl.int32)
    for start in range(0, blocks, BLOCKS):
        at = start + tl.arange(0, BLOCKS)
        used = at < blocks
        block = tl.load(table + first + at, mask=used, other=0).to(tl.int64)
        where = block[:, None] * cells + cell[None, :]
        here = used[:, None] & inside[None, :]
        total += tl.sum(tl.load(values + where, mask=here, other=0).to(tl.int32), 0)
        seen += tl.load(known + block, mask=used, other=0).to(tl.int32)
        if RECENT:
            # The factors of a request are as far from the first one as its blocks are from the first block.
            factor = tl.load(factors + (first - 2 * tl.num_programs(1)) + at, mask=used, other=0.0)
            weighed += tl.sum(tl.load(block_recent + where, mask=here, other=0.0).to(tl.float64) * factor[:, None], 0)
    tl.store(counts + request * row_words + cell, total, mask=inside)
    if RECENT:
        tl.store(recent + request * (row_words // 2) + cell, weighed, mask=inside)
    if tile == 0:
        tl.store(counts + request * row_words + cells, tl.sum(seen))


class SumSlots:
    """weights: by distance from the end of a prompt, or None."""

    def __init__(self, layout: Layout, ids: Any, known: Any, weights: Any) -> None:
        self.layout = layout
        self._has_recent = weights is not None
        self._sources = (ids, known, weights, len(weights) - 1) if self._has_recent else (ids, known, ids, 0)
        self._launch = Launcher(
            _sum_slots, SIZE=layout.block_size, TOP_K=layout.top_k, K=triton.next_power_of_2(layout.top_k),
            BINS=triton.next_power_of_2(layout.experts + 1), TOKENS=_TOKENS, RECENT=self._has_recent,
        )  # fmt: skip

    def __call__(self, requests: int, max_tokens: int, totals: Any, host: Any, table_at: int, counts_at: int, row_words: int) -> None:
        """max_tokens: of the longest prompt. totals: zeros before and after. host and the rest: see
        device_sums.py."""
        part = max(_MIN_PART, -(-max_tokens // (_MAX_PARTS * _TOKENS)) * _TOKENS)
        layout, has_recent = self.layout, self._has_recent
        self._launch(
            (max(1, -(-max_tokens // part)), layout.layers, requests), *self._sources,
            totals.counts, totals.recent if has_recent else totals.counts, totals.covered, totals.arrived,
            host.words, host.longs if has_recent else host.words, table_at, counts_at, row_words, part, layout.experts, layout.layers,
        )  # fmt: skip


class SumBlocks:
    """recent: None without a half-life."""

    def __init__(self, layout: Layout, values: Any, known: Any, recent: Any) -> None:
        self._cells = layout.layers * layout.experts
        self._sources = (values, known, values if recent is None else recent)
        self._launch = Launcher(_sum_blocks, SIZE=layout.block_size, TILE=_TILE, BLOCKS=_BLOCKS, RECENT=recent is not None)

    def __call__(self, requests: int, host: Any, table_at: int, counts_at: int, factors_at: int, row_words: int) -> None:
        grid = (-(-self._cells // _TILE), requests, 1)
        self._launch(grid, *self._sources, host.words, host.doubles, table_at, counts_at, factors_at, row_words, self._cells)
