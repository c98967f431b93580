"""Checks the code that capture.py times: compares the device's store with the NumPy store, step by step, with
new ids in each. On a CPU only eager mode is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eldr_vllm.capture import Capture
from eldr_vllm.layout import Layout
from eldr_vllm.recorder import KernelRecorder, PlainRecorder, Recorder
from eldr_vllm.store import End, NumpyStore
from eldr_vllm.torch_store import TorchStore

LAYERS, BLOCKS, TOKENS = 5, 60, 200


class Model:
    """Layers whose routers take the top of fixed score tensors, and that allocate and free memory like real
    layers."""

    def __init__(self, layout: Layout, device: str, kernels: bool) -> None:
        self.layout = layout
        self.scores = torch.rand(layout.layers, TOKENS, layout.experts, device=device)
        self.slots = torch.zeros(TOKENS, dtype=torch.int64, device=device)
        self.store = TorchStore(layout, device, kernels)
        shape = (layout.layers, layout.experts, layout.top_k)
        where = torch.device(device)
        recorder: Recorder = PlainRecorder(*shape, TOKENS, where, self.store)
        if kernels:
            self.store.warm()
            assert self.store.kernels
            recorder = KernelRecorder(*shape, where, self.store, observes=True)
        self.recorder = recorder
        self.capture = Capture(*shape, self.store, recorder, lambda: self.slots)
        self.hooks = [self.capture.hook(layer) for layer in range(layout.layers)]

    def layer(self, layer: int) -> None:
        ids = self.scores[layer].topk(self.layout.top_k, dim=1).indices.to(torch.int32)
        self.hooks[layer](ids)
        for _ in range(3):  # reuses memory that the allocator considers free
            torch.full_like(ids, 1)

    def forward(self) -> None:
        for layer in range(self.layout.layers):
            self.layer(layer)


def check_all(device: str) -> None:
    hows = ["eager"] if device == "cpu" else ["eager", "graph", "piecewise"]
    for half_life in (None, 33.3):
        for experts, size in ((128, 16), (288, 33)) if half_life is not None else ((128, 16),):
            for how in hows:
                for kernels in (False, True):
                    check(Layout(LAYERS, experts, 8, BLOCKS, size, half_life), device, how, kernels)
    for half_life in (None, 64.0):
        check_many(device, half_life)
    print(f"checked on {device}: {', '.join(hows)}")


def check_many(device: str, half_life: float | None) -> None:
    """Sums of many long prompts at once, several times, so that programs that add to the same totals meet."""
    layers, experts, blocks, requests = (48, 128, 4096, 16) if device == "cuda" else (2, 8, 40, 2)
    store = TorchStore(Layout(layers, experts, 8, blocks, 16, half_life), device, True)
    store.ids.copy_(torch.randint(experts, store.ids.shape, device=device))
    store.known.copy_(torch.rand(store.known.shape, device=device) < 0.9)
    rng = np.random.default_rng(2)
    plain = store.plain_sums()
    for turn in range(10 if device == "cuda" else 1):
        counts = rng.integers(1, blocks // 4, requests)
        ends = [End([int(block) for block in rng.permutation(blocks)[:count]], int(count) * 16 - 3) for count in counts]
        compare(plain.start(ends).get(), store.sums(ends).get(), f"many prompts, turn {turn}, half-life {half_life}")


def check(layout: Layout, device: str, how: str, kernels: bool) -> None:
    rng = np.random.default_rng(5)
    model, plain = Model(layout, device, kernels), NumpyStore(layout)
    run = recorded(model, how)
    model.store.forget(list(range(BLOCKS)))  # remove the results of the warm-up
    for step in range(4):
        size = layout.block_size
        slots = rng.permutation(BLOCKS * size)[:TOKENS]
        slots[-7:] = -1
        model.slots.copy_(torch.from_numpy(slots))
        model.scores.copy_(torch.rand(model.scores.shape))
        ids = model.scores.topk(layout.top_k, dim=2).indices.cpu().numpy().transpose(1, 0, 2)
        run()
        assert model.capture.off is None, model.capture.off
        plain.scatter(slots, ids)
        ends = [End([int(block) for block in rng.permutation(BLOCKS)[:count]], count * size) for count in (1, 9, BLOCKS)]
        what = f"{how}, {'kernels' if kernels else 'plain'}, step {step}, {layout}"
        compare(plain.sums(ends), model.store.sums(ends).get(), what)
        if kernels:
            used = model.recorder.distinct(TOKENS).array().reshape(-1, 2)
            rows = [[len(np.unique(ids[:end, layer])) for end in (TOKENS - 7, TOKENS)] for layer in range(layout.layers)]
            np.testing.assert_array_equal(used, rows, what)


def recorded(model: Model, how: str) -> Any:
    model.forward()  # warm up, as engines do
    model.capture.forget()
    if how == "eager":
        return model.forward
    layers = range(model.layout.layers)
    if how == "graph":
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model.forward()
        return graph.replay
    graphs, pool = [torch.cuda.CUDAGraph() for _ in layers], torch.cuda.graph_pool_handle()
    torch.cuda.synchronize()
    for layer in layers:
        with torch.cuda.graph(graphs[layer], pool=pool):
            model.layer(layer)
    return lambda: [graph.replay() for graph in graphs]


def compare(expected: Any, found: Any, what: str) -> None:
    assert expected.counts.any(), what
    np.testing.assert_array_equal(found.counts, expected.counts, what)
    np.testing.assert_array_equal(found.covered, expected.covered, what)
    if expected.recent is not None:
        off = np.abs(found.recent - expected.recent)
        assert off.max() <= 1, what
        assert off.sum() <= 0.001 * off.size, what  # values next to a half


if __name__ == "__main__":
    check_all("cuda" if torch.cuda.is_available() else "cpu")
