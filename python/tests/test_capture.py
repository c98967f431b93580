"""Hooks and steps, with torch on the CPU. The recorders of an accelerator run there too: one with plain
operations, one with kernels in Triton's interpreter."""

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
from eldr_vllm.recorder import KernelRecorder, PlainRecorder
from eldr_vllm.store import End
from eldr_vllm.torch_store import TorchStore
from eldr_vllm.worker import Worker

LAYERS, EXPERTS, TOP_K, SIZE = 3, 16, 2, 4
HOWS = ["cpu", "plain", "kernels"]


class Step:
    """A model with LAYERS routers, and the contents of vLLM's forward context."""

    def __init__(self, how: str, stores: bool = True) -> None:
        self.slots: Any = None
        kernels = how == "kernels"
        self.store = TorchStore(Layout(LAYERS, EXPERTS, TOP_K, 8, SIZE), "cpu", kernels) if stores else None
        self.recorder: Any = None
        if kernels:
            self.recorder = KernelRecorder(LAYERS, EXPERTS, TOP_K, torch.device("cpu"), self.store, observes=True)
        elif how == "plain":
            self.recorder = PlainRecorder(LAYERS, EXPERTS, TOP_K, 32, torch.device("cpu"), self.store)
        self.capture = Capture(LAYERS, EXPERTS, TOP_K, self.store, self.recorder, lambda: self.slots)
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


@pytest.mark.parametrize("how", HOWS)
def test_a_step_gives_the_sums_of_the_request(how: str) -> None:
    step = Step(how)
    slots = [12, 13, 14, 15, 4, 5, -1, -1]
    ids = np.concatenate([IDS, np.full((2, LAYERS, TOP_K), 15)])
    counts = step.run(StepMeta(tokens=6, ends={"r": End([3, 1], 6)}), slots, ids)
    part = pickle.loads(pickle.dumps(counts)).parts[0]
    sums = part.sums.get()
    expected = np.stack([np.bincount(IDS[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])
    assert (part.requests, part.layers) == (["r"], [0, 1, 2])
    assert sums.counts[0].tolist() == expected.tolist()
    assert sums.covered.tolist() == [6]


@pytest.mark.parametrize("how", HOWS)
def test_a_dry_run_stores_nothing(how: str) -> None:
    step = Step(how)
    assert step.run(StepMeta(tokens=6), None, IDS) is None
    assert step.worker.off is None
    assert step.store is not None
    assert int(step.store.known.sum()) == 0


@pytest.mark.parametrize("how", HOWS)
def test_generated_tokens_of_a_calibration_request_are_returned(how: str) -> None:
    step = Step(how)
    counts = step.run(StepMeta(tokens=2, records={"r": [(9, 17)]}), [3, 17], IDS[:2])
    part = counts.parts[0]
    assert part.record_keys == [("r", 9)]
    assert part.records.get().tolist() == [IDS[1].tolist()]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("stores", [False, True])
def test_distinct_experts_of_a_decode_step(how: str, stores: bool) -> None:
    step = Step(how, stores)
    step.run(StepMeta(tokens=4, decode_batch=4), list(range(4)), IDS[:4])
    step.run(StepMeta(tokens=6), list(range(6)), IDS)  # not a decode step
    data = step.tally.take()
    active = {"0": 8, "1": 8, "2": 8}
    assert data == {"steps": 1, "requests": 4, "active": active, "read": active, "once": {}}


def test_experts_of_padding_are_read_but_not_active() -> None:
    step = Step("kernels")
    step.run(StepMeta(tokens=4, decode_batch=4), [0, 1, 2, 3, -1, -1], np.concatenate([IDS[:4], np.full((2, LAYERS, TOP_K), 15)]))
    data = step.tally.take()
    assert data is not None
    assert data["active"] == {"0": 8, "1": 8, "2": 8}
    assert data["read"] == {"0": 9, "1": 9, "2": 9}


@pytest.mark.parametrize("how", HOWS)
def test_experts_of_a_wrong_shape_disable_only_capture(how: str, caplog: pytest.LogCaptureFixture) -> None:
    step = Step(how)
    for _ in range(3):
        counts = step.run(StepMeta(tokens=6, ends={"r": End([0, 1], 6)}), list(range(6)), np.concatenate([IDS, IDS], axis=2)[:, :, :3])
        assert counts.off is not None
        assert "RuntimeError" in counts.off
    assert caplog.text.count("capture is off from now on") == 1


def test_a_layer_that_routes_nothing_is_detected() -> None:
    step = Step("cpu")
    step.hooks = step.hooks[:2]
    counts = step.run(StepMeta(tokens=6, ends={"r": End([0, 1], 6)}), list(range(6)), IDS)
    assert "layers [2] of 3 routed nothing" in counts.off


@pytest.mark.parametrize("how", HOWS)
def test_ids_of_all_data_parallel_ranks_are_reduced_to_our_own(how: str) -> None:
    step = Step(how)
    step.capture._own_rows = lambda rows: (2, 5)
    counts = step.run(StepMeta(tokens=3, ends={"r": End([0], 3)}), [0, 1, 2], IDS)
    expected = np.stack([np.bincount(IDS[2:5, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])
    assert counts.parts[0].sums.get().counts[0].tolist() == expected.tolist()


@pytest.mark.parametrize("how", HOWS)
def test_a_copied_block_keeps_its_experts(how: str) -> None:
    step = Step(how)
    step.run(StepMeta(tokens=4), [4, 5, 6, 7], IDS[:4])
    counts = step.run(StepMeta(tokens=2, copies=[(1, 2)], ends={"r": End([2, 3], 6)}), [12, 13], IDS[4:])
    assert step.worker.off is None
    expected = np.stack([np.bincount(IDS[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])
    assert counts.parts[0].sums.get().counts[0].tolist() == expected.tolist()
    counts = step.run(StepMeta(tokens=2, unknown=[2], copies=[(1, 2)], ends={"r": End([2, 3], 6)}), [12, 13], IDS[4:])
    assert counts.parts[0].sums.get().counts[0].tolist() == expected.tolist()


@pytest.mark.parametrize("how", HOWS)
def test_invalid_expert_ids_are_not_counted_as_distinct(how: str) -> None:
    step = Step(how)
    step.run(StepMeta(tokens=2, decode_batch=2), [0, 1], np.array([[[0, -1]] * LAYERS, [[0, EXPERTS]] * LAYERS]))
    data = step.tally.take()
    assert data is not None
    assert data["active"] == {"0": 1, "1": 1, "2": 1}
