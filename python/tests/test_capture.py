"""Hooks and steps, with torch on the CPU. The code paths of an accelerator (the buffer, the scatter in the
last hook) are tested with a CPU buffer in place of the device's."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from eldr_vllm.capture import Capture
from eldr_vllm.layout import Layout
from eldr_vllm.messages import StepMeta
from eldr_vllm.metrics import Tally
from eldr_vllm.store import End
from eldr_vllm.torch_store import TorchStore
from eldr_vllm.worker import Worker

LAYERS, EXPERTS, TOP_K, SIZE = 3, 16, 2, 4


class Step:
    """A model with LAYERS routers, and the contents of vLLM's forward context."""

    def __init__(self, as_on_a_device: bool, stores: bool = True) -> None:
        self.slots: Any = None
        self.store = TorchStore(Layout(LAYERS, EXPERTS, TOP_K, 8, SIZE), "cpu") if stores else None
        self.capture = Capture(LAYERS, EXPERTS, TOP_K, 32, "cpu", self.store, lambda: self.slots)
        if as_on_a_device:
            self.capture._buffer = torch.zeros((32, LAYERS, TOP_K), dtype=torch.uint8)
        self.tally = Tally(list(range(LAYERS)))
        self.worker = Worker(0, list(range(LAYERS)), self.capture, None, self.tally)
        self.hooks = [self.capture.hook(row) for row in range(LAYERS)]

    def run(self, meta: StepMeta, slots: Any, ids: Any) -> Any:
        self.slots = None if slots is None else torch.tensor(slots)
        self.worker.begin(meta)
        for layer, hook in enumerate(self.hooks):
            hook(torch.as_tensor(ids)[:, layer].to(torch.int32))
        self.worker.end(meta, observe=True)
        return self.worker.answer(meta)


IDS = np.array([[[t % 4, 4 + (t + layer) % 8] for layer in range(LAYERS)] for t in range(6)])


@pytest.mark.parametrize("as_on_a_device", [False, True])
def test_a_step_gives_the_sums_of_the_request(as_on_a_device: bool) -> None:
    step = Step(as_on_a_device)
    slots = [12, 13, 14, 15, 4, 5, -1, -1]
    ids = np.concatenate([IDS, np.full((2, LAYERS, TOP_K), 15)])
    counts = step.run(StepMeta(tokens=6, fresh=[3, 1], ends={"r": End([3, 1], 6)}), slots, ids)
    part = pickle.loads(pickle.dumps(counts)).parts[0]
    sums = part.sums.get()
    expected = np.stack([np.bincount(IDS[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])
    assert (part.requests, part.layers) == (["r"], [0, 1, 2])
    assert sums.counts[0].tolist() == expected.tolist()
    assert sums.covered.tolist() == [6]


@pytest.mark.parametrize("as_on_a_device", [False, True])
def test_a_dry_run_stores_nothing(as_on_a_device: bool) -> None:
    step = Step(as_on_a_device)
    assert step.run(StepMeta(tokens=6), None, IDS) is None
    assert step.worker.off is None
    assert step.store is not None
    assert int(step.store.known.sum()) == 0


@pytest.mark.parametrize("as_on_a_device", [False, True])
def test_generated_tokens_of_a_calibration_request_are_returned(as_on_a_device: bool) -> None:
    step = Step(as_on_a_device)
    counts = step.run(StepMeta(tokens=2, records={"r": [(9, 17)]}), [3, 17], IDS[:2])
    part = counts.parts[0]
    assert part.record_keys == [("r", 9)]
    assert part.records.get().tolist() == [IDS[1].tolist()]


@pytest.mark.parametrize("as_on_a_device", [False, True])
@pytest.mark.parametrize("stores", [False, True])
def test_distinct_experts_of_a_decode_step(as_on_a_device: bool, stores: bool) -> None:
    step = Step(as_on_a_device, stores)
    step.run(StepMeta(tokens=4, decode_batch=4), list(range(4)), IDS[:4])
    step.run(StepMeta(tokens=6), list(range(6)), IDS)  # not a decode step
    data = step.tally.take()
    assert data == {"steps": 1, "requests": 4, "active": {"0": 8, "1": 8, "2": 8}, "once": {}}


@pytest.mark.parametrize("as_on_a_device", [False, True])
def test_experts_of_a_wrong_shape_disable_only_capture(as_on_a_device: bool, caplog: pytest.LogCaptureFixture) -> None:
    step = Step(as_on_a_device)
    for _ in range(3):
        counts = step.run(StepMeta(tokens=6, ends={"r": End([0, 1], 6)}), list(range(6)), np.concatenate([IDS, IDS], axis=2)[:, :, :3])
        assert counts.off is not None
        assert "RuntimeError" in counts.off
    assert caplog.text.count("capture is off from now on") == 1


def test_a_layer_that_routes_nothing_is_detected() -> None:
    step = Step(as_on_a_device=False)
    step.hooks = step.hooks[:2]
    counts = step.run(StepMeta(tokens=6, ends={"r": End([0, 1], 6)}), list(range(6)), IDS)
    assert "layers [2] of 3 routed nothing" in counts.off


def test_ids_of_all_data_parallel_ranks_are_reduced_to_our_own() -> None:
    step = Step(as_on_a_device=True)
    step.capture._own_rows = lambda rows: (2, 5)
    counts = step.run(StepMeta(tokens=3, ends={"r": End([0], 3)}), [0, 1, 2], IDS)
    expected = np.stack([np.bincount(IDS[2:5, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])
    assert counts.parts[0].sums.get().counts[0].tolist() == expected.tolist()


def test_a_copied_block_keeps_capture_enabled_with_counts_per_block() -> None:
    step = Step(as_on_a_device=True)
    step.store = step.capture.store = TorchStore(Layout(LAYERS, EXPERTS, TOP_K, 8, SIZE, form="blocks"), "cpu")
    step.run(StepMeta(tokens=4, fresh=[1]), [4, 5, 6, 7], IDS[:4])
    counts = step.run(StepMeta(tokens=2, fresh=[2, 3], copies=[(1, 2)], ends={"r": End([2, 3], 6)}), [12, 13], IDS[4:])
    assert step.worker.off is None
    expected = np.stack([np.bincount(IDS[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])
    assert counts.parts[0].sums.get().counts[0].tolist() == expected.tolist()


@pytest.mark.parametrize("as_on_a_device", [False, True])
def test_invalid_expert_ids_are_not_counted_as_distinct(as_on_a_device: bool) -> None:
    step = Step(as_on_a_device)
    step.run(StepMeta(tokens=2, decode_batch=2), [0, 1], np.array([[[0, -1]] * LAYERS, [[0, EXPERTS]] * LAYERS]))
    data = step.tally.take()
    assert data is not None
    assert data["active"] == {"0": 1, "1": 1, "2": 1}
