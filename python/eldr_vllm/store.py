"""Stores the experts of every KV slot and sums them over requests. This is the NumPy reference;
torch_store.py is tested against it. The store is indexed by the slots of the full-attention KV group, so
cached blocks keep the ids of the request that computed them, and a request's counts are sums over its block
table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .layout import Layout

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class End:
    """A prompt whose prefill ends: its blocks in order, and its number of tokens."""

    blocks: Sequence[int]
    tokens: int


@dataclass(frozen=True, slots=True)
class Sums:
    """counts: [requests, layers, experts]; covered: [requests], tokens with known experts; recent: weighted
    counts of the same shape, in tokens."""

    counts: Array
    covered: Array
    recent: Array | None = None


class Deferred(Protocol):
    """Sums that the device is still computing."""

    def get(self) -> Sums: ...


class NumpyStore:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        blocks, rows = layout.blocks, (layout.layers, layout.experts)
        if layout.form == "slots":
            shape = (blocks * layout.block_size, layout.layers, layout.top_k)
            self.ids = np.zeros(shape, np.uint8 if layout.id_bytes == 1 else np.uint16)
            self.known = np.zeros(shape[0], np.bool_)
            return
        self.counts = np.zeros((blocks, *rows), np.uint8 if layout.count_bytes == 1 else np.uint16)
        self.covered = np.zeros(blocks, np.uint16)
        self.recent = None if layout.half_life is None else np.zeros((blocks, *rows), np.float32)

    @property
    def nbytes(self) -> int:
        arrays = (self.ids, self.known) if self.layout.form == "slots" else (self.counts, self.covered, self.recent)
        return sum(array.nbytes for array in arrays if array is not None)

    def reset(self, blocks: Sequence[int]) -> None:
        """Marks the experts of newly allocated blocks as unknown until they are computed here."""
        if not blocks:
            return
        if self.layout.form == "slots":
            self.known.reshape(-1, self.layout.block_size)[list(blocks)] = False
            return
        for array in (self.counts, self.covered, self.recent):
            if array is not None:
                array[list(blocks)] = 0

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies the entries of blocks that the engine copies before the forward pass. pairs: (from, to)."""
        if not pairs:
            return
        sources, targets = (list(blocks) for blocks in zip(*pairs, strict=True))
        if self.layout.form == "slots":
            for array in (self.ids, self.known):
                whole = array.reshape(-1, self.layout.block_size, *array.shape[1:])
                whole[targets] = whole[sources]
            return
        for row in (self.counts, self.covered, self.recent):  # the whole block: see `rewrites_slots` in binding.py
            if row is not None:
                row[targets] = row[sources]

    def scatter(self, slots: Array, ids: Array) -> None:
        """Stores the experts of a step. slots: [tokens], negative for padding; ids: [tokens, layers, top_k].
        Ids that are not experts of the model are not counted."""
        keep = slots >= 0
        slots, ids = slots[keep], ids[keep]
        if self.layout.form == "slots":
            self.ids[slots] = ids
            self.known[slots] = True
            return
        block, offset = np.divmod(slots, self.layout.block_size)
        token, layer, rank = np.nonzero((ids >= 0) & (ids < self.layout.experts))
        where = (block[token], layer, ids[token, layer, rank])
        np.add.at(self.counts, where, 1)
        np.add.at(self.covered, block, 1)
        if self.recent is not None:
            weight = np.exp2((offset + 1 - self.layout.block_size) / self.layout.half_life)
            np.add.at(self.recent, where, weight[token].astype(np.float32))

    def sums(self, ends: Sequence[End]) -> Sums:
        layout = self.layout
        counts = np.zeros((len(ends), layout.layers, layout.experts), np.int64)
        covered = np.zeros(len(ends), np.int64)
        recent = None if layout.half_life is None else np.zeros(counts.shape, np.float64)
        for row, end in enumerate(ends):
            blocks = list(end.blocks[: -(-end.tokens // layout.block_size)])
            if layout.form == "blocks":
                counts[row] = self.counts[blocks].sum(axis=0, dtype=np.int64)
                covered[row] = self.covered[blocks].sum(dtype=np.int64)
                if recent is not None and self.recent is not None and layout.half_life is not None:
                    after = end.tokens - layout.block_size * np.arange(1, len(blocks) + 1)
                    recent[row] = np.tensordot(np.exp2(-after / layout.half_life), self.recent[blocks], 1)
                continue
            slots = (np.array(blocks, np.int64)[:, None] * layout.block_size + np.arange(layout.block_size)).ravel()
            slots = slots[: end.tokens]
            at = np.flatnonzero(self.known[slots])
            ids = self.ids[slots[at]].astype(np.int64)
            token, layer, rank = np.nonzero(ids < layout.experts)
            where = (layer, ids[token, layer, rank])
            np.add.at(counts[row], where, 1)
            covered[row] = len(at)
            if recent is not None and layout.half_life is not None:
                weight = np.exp2((at + 1 - end.tokens) / layout.half_life)
                np.add.at(recent[row], where, weight[token])
        return Sums(counts, covered, recent)

    def rows(self, slots: Sequence[int]) -> Array:
        """Ids of single slots: [slots, layers, top_k]."""
        return self.ids[list(slots)].copy()
