"""The sums of torch_sums.py in one kernel launch. A program handles one layer (or a tile of cells) for a
range of blocks of one request: it counts in registers and adds to the result once at the end."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .layout import Layout

_TOKENS = 64
_TILE = 1024


@triton.jit
def _add_slots(
    ids, known, weights, last_weight, columns, column_stride, parts, part_stride, counts, covered, recent, experts, layers,
    SIZE: tl.constexpr, TOP_K: tl.constexpr, K: tl.constexpr, BINS: tl.constexpr, TOKENS: tl.constexpr, RECENT: tl.constexpr,
):  # fmt: skip
    part, layer = tl.program_id(0), tl.program_id(1)
    request = tl.load(parts + part)
    first = tl.load(parts + part_stride + part)
    tokens = tl.load(parts + 2 * part_stride + part) * SIZE
    rank = tl.arange(0, K)
    bin_of = tl.arange(0, BINS)
    cells = request * layers * experts + layer * experts
    total = tl.zeros([BINS], tl.int32)
    seen = tl.zeros([TOKENS], tl.int32)
    for start in range(0, tokens, TOKENS):
        token = start + tl.arange(0, TOKENS)
        inside = token < tokens
        column = first + token // SIZE
        offset = token % SIZE
        block = tl.load(columns + column, mask=inside, other=0)
        length = tl.load(columns + 2 * column_stride + column, mask=inside, other=0)
        slot = block * SIZE + offset
        counted = inside & (offset < length)
        counted = counted & (tl.load(known + slot, mask=counted, other=0) != 0)
        seen += counted.to(tl.int32)
        here = counted[:, None] & (rank < TOP_K)[None, :]
        expert = tl.load(ids + (slot * layers + layer)[:, None] * TOP_K + rank[None, :], mask=here, other=0).to(tl.int32)
        here = here & (expert >= 0) & (expert < experts)
        # ids that are not counted go to the bin after the last expert
        total += tl.histogram(tl.reshape(tl.where(here, expert, experts), [TOKENS * K]), BINS)
        if RECENT:
            to_end = tl.load(columns + 3 * column_stride + column, mask=inside, other=0)
            distance = tl.minimum(tl.maximum(to_end - 1 - offset, 0), last_weight)
            units = tl.load(weights + distance, mask=counted, other=0)
            heavy = here & (units != 0)[:, None]
            tl.atomic_add(recent + cells + expert, tl.broadcast_to(units[:, None], [TOKENS, K]), mask=heavy, sem="relaxed")
    tl.atomic_add(counts + cells + bin_of, total, mask=(bin_of < experts) & (total > 0), sem="relaxed")
    if layer == 0:
        tl.atomic_add(covered + request, tl.sum(seen), sem="relaxed")


@triton.jit
def _add_blocks(
    values, known, block_recent, columns, column_stride, parts, part_stride, counts, covered, recent, cells,
    TILE: tl.constexpr, RECENT: tl.constexpr,
):  # fmt: skip
    part, tile = tl.program_id(0), tl.program_id(1)
    request = tl.load(parts + part)
    first = tl.load(parts + part_stride + part)
    blocks = tl.load(parts + 2 * part_stride + part)
    cell = tile * TILE + tl.arange(0, TILE)
    inside = cell < cells
    total = tl.zeros([TILE], tl.int32)
    weighed = tl.zeros([TILE], tl.float64)
    seen = tl.zeros([], tl.int32)
    for at in range(first, first + blocks):
        block = tl.load(columns + at)
        total += tl.load(values + block * cells + cell, mask=inside, other=0).to(tl.int32)
        seen += tl.load(known + block).to(tl.int32)
        if RECENT:
            factor = tl.load(columns + 3 * column_stride + at).to(tl.float64, bitcast=True)
            weighed += tl.load(block_recent + block * cells + cell, mask=inside, other=0).to(tl.float64) * factor
    tl.atomic_add(counts + request * cells + cell, total, mask=inside & (total > 0), sem="relaxed")
    if RECENT:
        tl.atomic_add(recent + request * cells + cell, weighed, mask=inside & (weighed > 0), sem="relaxed")
    if tile == 0:
        tl.atomic_add(covered + request, seen, sem="relaxed")


def add(layout: Layout, sources: Any, weights: Any, columns: Any, parts: Any, targets: Any) -> None:
    """columns and parts: from torch_sums.py, on the device."""
    count = parts.shape[1]
    has_recent = targets.recent is not None
    where = (columns, columns.stride(0), parts, parts.stride(0), targets.counts, targets.covered)
    recent = targets.recent if has_recent else targets.counts
    if layout.form == "slots":
        _add_slots[(count, layout.layers)](
            sources.values, sources.known, weights if has_recent else targets.counts, len(weights) - 1 if has_recent else 0, *where, recent,
            layout.experts, layout.layers, SIZE=layout.block_size, TOP_K=layout.top_k, K=triton.next_power_of_2(layout.top_k),
            BINS=triton.next_power_of_2(layout.experts + 1), TOKENS=_TOKENS, RECENT=has_recent, num_warps=4,
        )  # fmt: skip
        return
    cells = layout.layers * layout.experts
    _add_blocks[(count, triton.cdiv(cells, _TILE))](
        sources.values, sources.known, sources.recent if has_recent else sources.values, *where, recent, cells,
        TILE=_TILE, RECENT=has_recent, num_warps=4,
    )  # fmt: skip
