"""Stores the experts of a step in one launch, straight from the routers' ids: [layers, rows, top_k]. May be
recorded in a CUDA graph, so nothing here depends on values that change from step to step except the tensors."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .launch import Launcher
from .layout import Layout

_TOKENS = 8
_MAX_CELLS = 512


@triton.jit(do_not_specialize=["rows", "first", "tokens"], do_not_specialize_on_alignment=["ids", "slots"])
def _scatter_slots(
    ids, slots, store, known, rows, first, tokens, experts, other, cells,
    TOP_K: tl.constexpr, TOKENS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    slot = tl.load(slots + token, mask=token < tokens, other=-1).to(tl.int64)
    cell = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    real = slot >= 0
    here = real[:, None] & (cell < cells)[None, :]
    source = ((cell // TOP_K) * rows + first)[None, :] + token[:, None]
    expert = tl.load(ids + source * TOP_K + (cell % TOP_K)[None, :], mask=here, other=0).to(tl.int32)
    expert = tl.where((expert >= 0) & (expert < experts), expert, other)
    tl.store(store + slot[:, None] * cells + cell[None, :], expert.to(store.dtype.element_ty), mask=here)
    if tl.program_id(1) == 0:
        tl.store(known + slot, tl.full([TOKENS], 1, tl.uint8), mask=real)


@triton.jit(do_not_specialize=["rows", "first", "tokens"], do_not_specialize_on_alignment=["ids", "slots"])
def _scatter_blocks(
    ids, slots, words, covered, recent, weights, rows, first, tokens, experts, cells, ids_per_token,
    SIZE: tl.constexpr, TOP_K: tl.constexpr, BITS: tl.constexpr, TOKENS: tl.constexpr, CELLS: tl.constexpr, RECENT: tl.constexpr,
):  # fmt: skip
    """Counts of 8 or 16 bits are incremented within words of 32. A count never exceeds the block size, so
    nothing carries into its neighbour."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    slot = tl.load(slots + token, mask=token < tokens, other=-1).to(tl.int64)
    real = slot >= 0
    block = tl.where(real, slot, 0) // SIZE
    choice = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    layer = choice // TOP_K
    here = real[:, None] & (choice < ids_per_token)[None, :]
    source = (layer * rows + first)[None, :] + token[:, None]
    expert = tl.load(ids + source * TOP_K + (choice % TOP_K)[None, :], mask=here, other=0).to(tl.int32)
    here = here & (expert >= 0) & (expert < experts)
    where = block[:, None] * cells + (layer * experts)[None, :] + expert
    per_word: tl.constexpr = 32 // BITS
    shift = ((where % per_word) * BITS).to(tl.int32)
    tl.atomic_add(words + where // per_word, tl.full([TOKENS, CELLS], 1, tl.int32) << shift, mask=here, sem="relaxed")
    if RECENT:
        weight = tl.load(weights + (tl.where(real, slot, 0) - block * SIZE), mask=real, other=0.0)
        tl.atomic_add(recent + where, tl.broadcast_to(weight[:, None], [TOKENS, CELLS]), mask=here, sem="relaxed")
    if tl.program_id(1) == 0:
        half = ((block % 2) * 16).to(tl.int32)
        tl.atomic_add(covered + block // 2, tl.full([TOKENS], 1, tl.int32) << half, mask=real, sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=["blocks"])
def _clear_blocks(blocks, counts, covered, recent, cells, TILE: tl.constexpr, RECENT: tl.constexpr):
    block = tl.load(blocks + tl.program_id(0)).to(tl.int64)
    cell = tl.program_id(1) * TILE + tl.arange(0, TILE)
    at = block * cells + cell
    tl.store(counts + at, tl.zeros([TILE], counts.dtype.element_ty), mask=cell < cells)
    if RECENT:
        tl.store(recent + at, tl.zeros([TILE], tl.float32), mask=cell < cells)
    if tl.program_id(1) == 0:
        tl.store(covered + block, 0)


@triton.jit(do_not_specialize_on_alignment=["blocks"])
def _clear_known(blocks, known, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    slot = tl.arange(0, WIDTH)
    block = tl.load(blocks + tl.program_id(0)).to(tl.int64)
    tl.store(known + block * SIZE + slot, tl.zeros([WIDTH], tl.uint8), mask=slot < SIZE)


class SlotKernels:
    """For ids per slot. store, known: see torch_store.py."""

    def __init__(self, layout: Layout, store: Any, known: Any) -> None:
        self._store, self._known = store, known
        cells = layout.layers * layout.top_k
        width = min(_MAX_CELLS, triton.next_power_of_2(cells))
        other = 255 if layout.id_bytes == 1 else -1  # an id that is not an expert; with 256 experts it is the last one
        self._numbers = (layout.experts, other, cells)
        self._tiles = -(-cells // width)
        self._scatter = Launcher(_scatter_slots, TOP_K=layout.top_k, TOKENS=_TOKENS, CELLS=width)
        self._clear = Launcher(_clear_known, SIZE=layout.block_size, WIDTH=triton.next_power_of_2(layout.block_size))

    def scatter(self, slots: Any, ids: Any, rows: int, first: int, tokens: int) -> None:
        """ids: [layers · rows, top_k], of which `tokens` rows from `first` belong to the slots."""
        grid = (-(-tokens // _TOKENS), self._tiles, 1)
        self._scatter(grid, ids, slots, self._store, self._known, rows, first, tokens, *self._numbers, key=(ids.dtype, slots.dtype))

    def clear(self, blocks: Any, count: int) -> None:
        """blocks: `count` 32-bit integers that the device can read."""
        self._clear((count, 1, 1), blocks, self._known)


class BlockKernels:
    """For counts per block. words and covered_words: the counts and the numbers of known tokens, viewed as 32-bit
    integers. recent and weights (by offset in the block): None without a half-life."""

    def __init__(self, layout: Layout, counts: Any, words: Any, covered: Any, covered_words: Any, recent: Any, weights: Any) -> None:
        has_recent = recent is not None
        choices, cells = layout.layers * layout.top_k, layout.layers * layout.experts
        width, tile = min(_MAX_CELLS, triton.next_power_of_2(choices)), min(1024, triton.next_power_of_2(cells))
        self._scattered = (words, covered_words, recent if has_recent else words, weights if has_recent else words)
        self._cleared = (counts, covered, recent if has_recent else counts, cells)
        self._numbers = (layout.experts, cells, choices)
        self._tiles, self._clear_tiles = -(-choices // width), -(-cells // tile)
        self._scatter = Launcher(
            _scatter_blocks, SIZE=layout.block_size, TOP_K=layout.top_k, BITS=8 * layout.count_bytes, TOKENS=_TOKENS, CELLS=width,
            RECENT=has_recent,
        )  # fmt: skip
        self._clear = Launcher(_clear_blocks, TILE=tile, RECENT=has_recent)

    def scatter(self, slots: Any, ids: Any, rows: int, first: int, tokens: int) -> None:
        """See SlotKernels."""
        grid = (-(-tokens // _TOKENS), self._tiles, 1)
        self._scatter(grid, ids, slots, *self._scattered, rows, first, tokens, *self._numbers, key=(ids.dtype, slots.dtype))

    def clear(self, blocks: Any, count: int) -> None:
        self._clear((count, self._clear_tiles, 1), blocks, *self._cleared)
