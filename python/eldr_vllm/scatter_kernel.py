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


@triton.jit(do_not_specialize_on_alignment=["blocks"])
def _clear_known(blocks, known, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    slot = tl.arange(0, WIDTH)
    block = tl.load(blocks + tl.program_id(0)).to(tl.int64)
    tl.store(known + block * SIZE + slot, tl.zeros([WIDTH], tl.uint8), mask=slot < SIZE)


class StepKernels:
    """store, known: see torch_store.py."""

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
