"""The kernels of an accelerator, run by Triton's interpreter on a CPU, against the store in NumPy.
bench/capture.py checks them compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from eldr_vllm import sum_kernel
from eldr_vllm.layout import Layout
from eldr_vllm.recorder import KernelRecorder, distinct_experts
from eldr_vllm.store import End, NumpyStore
from eldr_vllm.torch_store import TorchStore

SHAPES = [
    pytest.param(Layout(3, 64, 8, 40, 16), id="blocks of 16"),
    pytest.param(Layout(2, 288, 6, 9, 33), id="experts beyond a byte, a block size and a top-k that are no powers of two"),
    pytest.param(Layout(1, 16, 1, 7, 528), id="large blocks"),
    pytest.param(Layout(2, 700, 2, 5, 128), id="many experts"),
    pytest.param(Layout(3, 5, 2, 11, 3), id="small and odd"),
    pytest.param(Layout(9, 70, 64, 3, 4), id="more ids per token than a program stores"),
]


class Stores:
    """The store with kernels and the one in NumPy, with the same input."""

    def __init__(self, shape: Layout, half_life: float | None) -> None:
        self.layout = Layout(shape.layers, shape.experts, shape.top_k, shape.blocks, shape.block_size, half_life)
        self.plain, self.kernels = NumpyStore(self.layout), TorchStore(self.layout, "cpu", kernels=True)
        self.rng = np.random.default_rng(11)

    def scatter(self, slots: Any) -> Any:
        """slots: with padding. Returns the ids."""
        layout = self.layout
        ids: Any = np.argsort(self.rng.random((len(slots), layout.layers, layout.experts)), axis=2)[:, :, : layout.top_k]
        ids[self.rng.random(ids.shape) < 0.05] = -1  # not an expert of the model, like the next
        ids[self.rng.random(ids.shape) < 0.05] = layout.experts + 256
        self.plain.scatter(slots, np.where(ids < layout.experts, ids, -1))
        # Rows of other ranks stand before and after our own.
        rows = np.concatenate([np.zeros_like(ids[:2]), ids, np.zeros_like(ids[:1])]).transpose(1, 0, 2)
        joined = torch.from_numpy(np.ascontiguousarray(rows.reshape(-1, layout.top_k)).astype(np.int32))
        self.kernels.scatter_layers(torch.from_numpy(slots), joined, len(ids) + 3, 2, len(ids))
        return ids

    def compare(self, ends: list[End]) -> None:
        expected, found = self.plain.sums(ends), self.kernels.sums(ends).get()
        assert found.counts.tolist() == expected.counts.tolist()
        assert found.covered.tolist() == expected.covered.tolist()
        assert (found.recent is None) == (expected.recent is None)
        if expected.recent is not None and found.recent is not None:
            off = np.abs(found.recent - expected.recent)
            assert off.max(initial=0) <= 1
            assert off.sum() <= 0.001 * off.size  # values next to a half

    def ends(self, requests: int) -> list[End]:
        layout, out = self.layout, []
        for _ in range(requests):
            blocks = [int(block) for block in self.rng.permutation(layout.blocks)]
            count = int(self.rng.integers(1, len(blocks) + 1))
            out.append(End(blocks[:count], count * layout.block_size - int(self.rng.integers(layout.block_size))))
        return out


@pytest.mark.parametrize("half_life", [None, 33.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_and_sums_equal_those_in_numpy(shape: Layout, half_life: float | None) -> None:
    stores = Stores(shape, half_life)
    slots = stores.rng.permutation(shape.blocks * shape.block_size)
    slots = slots[: int(0.8 * len(slots))]  # the others are unknown
    slots[3::7] = -1
    half = len(slots) // 2
    stores.scatter(slots[:half])
    stores.compare(stores.ends(3))
    assert stores.plain.sums(stores.ends(1)).counts.any()
    stores.scatter(slots[half:])
    for requests in (1, 5, 2, 0):  # a sum leaves nothing behind for the next
        stores.compare(stores.ends(requests))
    cleared = [0, shape.blocks - 1]
    stores.plain.forget(cleared)
    stores.kernels.forget(cleared)
    stores.compare([End(list(range(shape.blocks)), shape.blocks * shape.block_size)])


def test_long_prompts_have_larger_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_kernel, "_MAX_PARTS", 3)
    stores = Stores(Layout(1, 4, 1, 9, 256), 8)
    stores.scatter(np.arange(9 * 256))
    stores.compare([End(list(range(8, -1, -1)), 9 * 256 - 5), End([3], 1)])


@pytest.mark.parametrize("padding_runs", [True, False])
@pytest.mark.parametrize(("layers", "experts", "top_k"), [(3, 64, 8), (1, 5, 1), (2, 300, 6)])
def test_distinct_experts_with_and_without_padding(layers: int, experts: int, top_k: int, padding_runs: bool) -> None:
    rng = np.random.default_rng(1)
    ids = torch.from_numpy(rng.integers(-1, experts + 1, (layers, 70, top_k)).astype(np.int32))
    slots = torch.arange(70)
    slots[65:] = -1  # padding
    recorder = KernelRecorder(layers, experts, top_k, torch.device("cpu"), None, observes=True)
    recorder.record(list(ids), slots, 0, 70, padding_runs)
    own = distinct_experts(ids[:, :65].transpose(0, 1), experts)
    rows = distinct_experts(ids.transpose(0, 1), experts)
    found = recorder.distinct(65).array().reshape(layers, 2)
    assert found[:, 0].tolist() == own.tolist()
    assert found[:, 1].tolist() == (rows if padding_runs else own).tolist()
    recorder.record([layer[:9] for layer in ids], slots[:7], 1, 9, True)  # slots for the tokens only
    found = recorder.distinct(7).array().reshape(layers, 2)
    assert found[:, 0].tolist() == distinct_experts(ids[:, 1:8].transpose(0, 1), experts).tolist()
    assert found[:, 1].tolist() == distinct_experts(ids[:, 1:9].transpose(0, 1), experts).tolist()


def test_kernels_that_cannot_be_compiled_give_way_to_plain_operations(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = TorchStore(Layout(2, 8, 2, 4, 4), "cpu", kernels=True)

    def broken(*_: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(store, "scatter_layers", broken)
    store.warm()
    assert not store.kernels
    assert "no compiler" in caplog.text
    store.scatter(torch.tensor([4]), torch.tensor([[[1, 2], [3, 4]]]))
    assert store.sums([End([1], 1)]).get().covered.tolist() == [1]


@pytest.mark.parametrize("half_life", [None, 16])
def test_warming_leaves_the_store_empty(half_life: float | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    store = TorchStore(Layout(2, 8, 2, 4, 4, half_life), "cpu", kernels=True)
    store.warm()
    assert store.kernels, caplog.text
    assert "kernels are ready" in caplog.text
    assert not any(bool(tensor.any()) for tensor in (store.ids, store.known))
