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
from .wire import RECENT_UNITS

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class End:
    """A prompt whose prefill ends: its blocks in order, and its number of tokens."""

    blocks: Sequence[int]
    tokens: int


@dataclass(frozen=True, slots=True)
class Sums:
    """counts: [requests, layers, experts]; covered: [requests], tokens with known experts; recent: weighted
    counts of the same shape, in units of 1/256 token, as they are sent."""

    counts: Array
    covered: Array
    recent: Array | None = None


class Deferred(Protocol):
    """Sums that the device is still computing."""

    def get(self) -> Sums: ...


class NumpyStore:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.ids = np.zeros((layout.slots, layout.layers, layout.top_k), np.uint8 if layout.id_bytes == 1 else np.uint16)
        self.known = np.zeros(layout.slots, np.bool_)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.known.nbytes

    def forget(self, blocks: Sequence[int]) -> None:
        """Marks the experts of blocks as unknown until they are computed here."""
        self.known.reshape(-1, self.layout.block_size)[list(blocks)] = False

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies the entries of blocks that the engine copies before the forward pass. pairs: (from, to)."""
        if not pairs:
            return
        sources, targets = (list(blocks) for blocks in zip(*pairs, strict=True))
        for array in (self.ids, self.known):
            whole = array.reshape(-1, self.layout.block_size, *array.shape[1:])
            whole[targets] = whole[sources]

    def scatter(self, slots: Array, ids: Array) -> None:
        """Stores the experts of a step. slots: [tokens], negative for padding; ids: [tokens, layers, top_k].
        Ids that are not experts of the model are not counted."""
        keep = slots >= 0
        self.ids[slots[keep]] = ids[keep]
        self.known[slots[keep]] = True

    def sums(self, ends: Sequence[End]) -> Sums:
        layout = self.layout
        counts = np.zeros((len(ends), layout.layers, layout.experts), np.int64)
        covered = np.zeros(len(ends), np.int64)
        recent = np.zeros(counts.shape, np.float64)
        for row, end in enumerate(ends):
            blocks = np.array(end.blocks[: -(-end.tokens // layout.block_size)], np.int64)
            slots = (blocks[:, None] * layout.block_size + np.arange(layout.block_size)).ravel()[: end.tokens]
            at = np.flatnonzero(self.known[slots])
            ids = self.ids[slots[at]].astype(np.int64)
            token, layer, rank = np.nonzero(ids < layout.experts)
            where = (layer, ids[token, layer, rank])
            np.add.at(counts[row], where, 1)
            covered[row] = len(at)
            if layout.half_life is not None:
                np.add.at(recent[row], where, np.exp2((at + 1 - end.tokens) / layout.half_life)[token])
        return Sums(counts, covered, None if layout.half_life is None else recent_units(recent))

    def rows(self, slots: Sequence[int]) -> Array:
        """Ids of single slots: [slots, layers, top_k]."""
        return self.ids[list(slots)].copy()


def recent_units(tokens: Array) -> Array:
    """Rounds half up, as all implementations must: with a half-life of 1 the token at distance 9 is half a unit."""
    return np.floor(tokens * RECENT_UNITS + 0.5).astype(np.int32)
