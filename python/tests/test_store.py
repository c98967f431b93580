"""The store alone: NumPy, and torch against NumPy if torch is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eldr_vllm import wire
from eldr_vllm.layout import Layout
from eldr_vllm.store import End, NumpyStore, Sums

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "test" / "golden" / "wire" / "vectors.json").read_text(encoding="utf-8"))
WITH_IDS = [pytest.param(case, id=case["name"]) for case in VECTORS["encode"] if "ids" in case]


class Stores:
    """Both stores with the same input."""

    def __init__(self, layout: Layout) -> None:
        self.numpy = NumpyStore(layout)
        try:
            from eldr_vllm.torch_store import TorchStore
        except ImportError:
            self.torch: Any = None
        else:
            self.torch = TorchStore(layout, "cpu")
            assert self.torch.nbytes == layout.nbytes

    def scatter(self, slots: Any, ids: Any) -> None:
        slots, ids = np.asarray(slots), np.asarray(ids)
        self.numpy.scatter(slots, ids)
        if self.torch is not None:
            import torch

            self.torch.scatter(torch.from_numpy(slots.astype(np.int64)), torch.from_numpy(ids.astype(np.int32)))

    def forget(self, blocks: list[int]) -> None:
        self.numpy.forget(blocks)
        if self.torch is not None:
            self.torch.forget(blocks)

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        self.numpy.copy(pairs)
        if self.torch is not None:
            self.torch.copy(pairs)

    def sums(self, ends: list[End]) -> Sums:
        one = self.numpy.sums(ends)
        if self.torch is not None:
            two = self.torch.sums(ends).get()
            assert one.counts.tolist() == two.counts.tolist()
            assert one.covered.tolist() == two.covered.tolist()
            if one.recent is not None:
                assert one.recent.tolist() == two.recent.tolist()
        return one


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("case", WITH_IDS)
def test_golden_ids_become_the_golden_object(case: dict[str, Any], size: int) -> None:
    tokens, half_life = case["tokens"], case.get("half_life")
    count = -(-tokens // size)
    stores = Stores(Layout(case["layers"], case["experts"], case["top_k"], count + 3, size, half_life))
    blocks = [int(block) for block in np.random.default_rng(tokens).permutation(count + 3)[:count]]
    known = [at for at in range(tokens) if case.get("known", [1] * tokens)[at]]
    stores.scatter([blocks[at // size] * size + at % size for at in known], [case["ids"][at] for at in known])
    sums = stores.sums([End(blocks, tokens)])
    recent = None if sums.recent is None else sums.recent[0]
    sent = wire.encode(wire.Captured(case["top_k"], tokens, int(sums.covered[0]), sums.counts[0], recent, half_life))
    assert sent == {key: value for key, value in case["payload"].items() if key in sent}


@pytest.mark.parametrize("size", [128, 255, 256])
def test_one_expert_for_every_token_of_a_large_block_does_not_overflow(size: int) -> None:
    stores = Stores(Layout(1, 4, 1, 5, size, None))
    for block in (1, 3):
        stores.scatter(np.arange(size) + block * size, np.full((size, 1, 1), 2))
    assert stores.sums([End([3, 1], 2 * size)]).counts.tolist() == [[[0, 0, 2 * size, 0]]]


def test_padding_is_ignored() -> None:
    stores = Stores(Layout(1, 4, 2, 3, 4, 8))
    stores.scatter([-1, 5, -1], [[[0, 1]], [[2, 3]], [[0, 1]]])
    sums = stores.sums([End([0, 1, 2], 12), End([1], 4)])
    assert sums.counts.tolist() == [[[0, 0, 1, 1]], [[0, 0, 1, 1]]]
    assert sums.covered.tolist() == [1, 1]


def test_a_forgotten_block_is_unknown_until_it_is_computed() -> None:
    stores = Stores(Layout(1, 4, 2, 4, 4, 8))
    stores.scatter(range(16), [[[0, 1]]] * 16)
    stores.forget([1, 2])
    stores.scatter([4, 5], [[[2, 3]]] * 2)
    sums = stores.sums([End([1, 2], 8), End([3], 3)])
    assert sums.counts[0].tolist() == [[0, 0, 2, 2]]
    assert sums.covered.tolist() == [2, 3]


def test_slots_beyond_a_prompt_are_not_counted() -> None:
    stores = Stores(Layout(1, 4, 2, 4, 4, None))
    stores.scatter(range(16), [[[0, 1]]] * 16)
    assert stores.sums([End([2, 0], 5)]).covered.tolist() == [5]


def test_a_slot_computed_twice_counts_once() -> None:
    stores = Stores(Layout(1, 4, 2, 2, 4, None))
    stores.scatter([0, 1], [[[0, 1]]] * 2)
    stores.scatter([1], [[[2, 3]]])
    assert stores.sums([End([0], 2)]).counts.tolist() == [[[1, 1, 1, 1]]]


def test_a_copied_block_keeps_its_ids() -> None:
    stores = Stores(Layout(1, 4, 2, 4, 4, None))
    stores.scatter([4, 5, 6], [[[0, 1]], [[1, 2]], [[2, 3]]])
    stores.forget([3])
    stores.copy([(1, 3)])
    stores.scatter([14], [[[0, 3]]])
    assert stores.sums([End([3], 3)]).counts.tolist() == [[[2, 2, 1, 1]]]


def test_all_copied_blocks_are_read_before_any_is_written() -> None:
    stores = Stores(Layout(1, 4, 2, 4, 4))
    stores.scatter([4, 5, 6], [[[0, 1]], [[1, 2]], [[2, 3]]])
    stores.scatter([12], [[[0, 1]]])
    stores.copy([])
    stores.copy([(1, 3), (3, 2)])
    sums = stores.sums([End([3], 4), End([2], 4)])
    assert sums.counts.tolist() == [[[1, 2, 2, 1]], [[1, 1, 0, 0]]]
    assert sums.covered.tolist() == [3, 1]


@pytest.mark.parametrize("half_life", [None, 8])
@pytest.mark.parametrize(("experts", "wrong"), [(128, -1), (128, 130), (300, -1), (300, 301)])
def test_invalid_expert_ids_are_not_counted(experts: int, wrong: int, half_life: float | None) -> None:
    stores = Stores(Layout(2, experts, 2, 3, 4, half_life))
    stores.scatter([4, 5, 6, 7], [[[0, wrong], [1, 2]], [[wrong, wrong], [3, 4]], [[5, 6], [wrong, 7]], [[0, 1], [0, 1]]])
    sums = stores.sums([End([1], 4)])
    assert np.flatnonzero(sums.counts[0, 0]).tolist() == [0, 1, 5, 6]
    assert np.flatnonzero(sums.counts[0, 1]).tolist() == [0, 1, 2, 3, 4, 7]
    assert sums.counts[0].sum(axis=1).tolist() == [5, 7]
    assert sums.covered.tolist() == [4]
    if sums.recent is not None:
        assert np.array_equal(sums.recent > 0, sums.counts > 0)


def test_ids_beyond_one_byte() -> None:
    stores = Stores(Layout(2, 300, 2, 2, 4, None))
    stores.scatter([0], [[[299, 256], [0, 257]]])
    counts = stores.sums([End([0], 1)]).counts[0]
    assert np.argwhere(counts).tolist() == [[0, 256], [0, 299], [1, 0], [1, 257]]


def test_no_prompt_ends() -> None:
    stores = Stores(Layout(1, 4, 2, 2, 4, 8))
    assert stores.sums([]).counts.shape == (0, 1, 4)


def test_long_prompts_are_summed_in_parts() -> None:
    rng = np.random.default_rng(3)
    stores = Stores(Layout(2, 16, 2, 700, 16, 64))
    slots = rng.permutation(700 * 16)
    ids = np.argsort(rng.random((len(slots), 2, 16)), axis=2)[:, :, :2]
    stores.scatter(slots, ids)
    blocks = [int(block) for block in rng.permutation(700)]
    ends = [End(blocks[:650], 650 * 16), End(blocks[40:], 660 * 16)]
    assert stores.sums(ends).covered.tolist() == [650 * 16, 660 * 16]
