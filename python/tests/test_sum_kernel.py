"""The kernels of an accelerator, run by Triton's interpreter on a CPU, against the store in NumPy.
bench/capture.py does it compiled."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read where a kernel is decorated
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from eldr_vllm.layout import Form, Layout
from eldr_vllm.store import End, NumpyStore
from eldr_vllm.sum_kernel import add
from eldr_vllm.torch_store import TorchStore

SHAPES = [
    pytest.param(Layout(3, 64, 8, 40, 16), id="blocks of 16"),
    pytest.param(Layout(2, 288, 6, 9, 33), id="experts beyond a byte, a block size and a top-k that are no powers of two"),
    pytest.param(Layout(1, 16, 1, 7, 528), id="counts beyond a byte"),
    pytest.param(Layout(2, 700, 2, 5, 128), id="several tiles"),
]


@pytest.mark.parametrize("half_life", [None, 33.3])
@pytest.mark.parametrize("form", ["slots", "blocks"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_equal_those_in_numpy(shape: Layout, form: Form, half_life: float | None) -> None:
    layout = Layout(shape.layers, shape.experts, shape.top_k, shape.blocks, shape.block_size, half_life, form)
    rng = np.random.default_rng(11)
    plain, store = NumpyStore(layout), TorchStore(layout, "cpu")
    store._summing.kernel = add
    slots = np.flatnonzero(rng.random(layout.blocks * layout.block_size) < 0.8)  # some are unknown
    ids: Any = np.argsort(rng.random((len(slots), layout.layers, layout.experts)), axis=2)[:, :, : layout.top_k]
    ids[rng.random(ids.shape) < 0.05] = -1  # not an expert of the model, like the next
    ids[rng.random(ids.shape) < 0.05] = layout.experts
    plain.scatter(slots, ids)
    store.scatter(torch.from_numpy(slots), torch.from_numpy(ids))
    ends = []
    for _ in range(3):
        blocks = [int(block) for block in rng.permutation(layout.blocks)]
        short = 0 if form == "blocks" else int(rng.integers(layout.block_size))  # counts per block are all or nothing
        count = int(rng.integers(1, len(blocks) + 1))
        ends.append(End(blocks[:count], count * layout.block_size - short))
    expected, found = plain.sums(ends), store.sums(ends).get()
    assert expected.counts.any()
    assert found.counts.tolist() == expected.counts.tolist()
    assert found.covered.tolist() == expected.covered.tolist()
    if half_life is not None:
        assert expected.recent is not None
        assert found.recent is not None
        np.testing.assert_allclose(found.recent, expected.recent, rtol=1e-5, atol=1e-9)
