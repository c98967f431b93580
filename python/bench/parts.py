"""The measured parts of capture, each as it runs in a served engine: the hooks of a step's layers with the
scatter, the sums of a prompt that ends, reading and encoding them, and the distinct experts of a decode step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from clock import Clock

from eldr_vllm import wire
from eldr_vllm.capture import Capture
from eldr_vllm.fetched import fetched, sent
from eldr_vllm.layout import Layout
from eldr_vllm.recorder import KernelRecorder, PlainRecorder, Recorder
from eldr_vllm.store import End
from eldr_vllm.torch_store import TorchStore

HOWS = ("kernels", "plain")


@dataclass(frozen=True)
class Case:
    layers: int
    experts: int
    top_k: int
    size: int
    half_life: float | None
    blocks: int
    steps: tuple[int, ...] = (128, 512, 2048, 8192)
    ends: tuple[int, ...] = (1,)

    @property
    def layout(self) -> Layout:
        return Layout(self.layers, self.experts, self.top_k, self.blocks, self.size, self.half_life)

    @property
    def about(self) -> dict[str, Any]:
        return {"layers": self.layers, "experts": self.experts, "size": self.size, "half_life": self.half_life}


def cases() -> Iterator[Case]:
    """The most important first."""
    for half_life in (64.0, None):
        for layers, experts in ((48, 128), (6, 64)):
            yield Case(layers, experts, 8, 16, half_life, 32_768, ends=(1, 16) if layers == 48 else (1,))


def basics(clock: Clock) -> list[dict[str, Any]]:
    """What single calls cost on this machine."""
    if not clock.on_gpu:
        return []
    device = torch.device("cuda")
    small, event = torch.zeros(1024, dtype=torch.int32, device=device), torch.cuda.Event()
    store = TorchStore(Layout(6, 64, 8, 64, 16), device)
    slots, ids = torch.full((8,), -1, device=device), torch.zeros((6 * 8, 8), dtype=torch.int32, device=device)
    values = np.zeros(128, np.int64)
    calls = {
        "one torch operation": lambda: small.add_(1),
        "one Triton launch": lambda: store.scatter_layers(slots, ids, 8, 0, 8),
        "recording an event": event.record,
        "new pinned memory and copy to the device": lambda: sent(values, device),
        "new pinned memory and copy to the host": lambda: fetched(device, small),
    }
    return [{"what": "basic", "call": name} | clock.timed(call) for name, call in calls.items()]


def measured(case: Case, clock: Clock) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for how in HOWS:
        store = TorchStore(case.layout, clock.device, how == "kernels")
        store.warm()
        assert store.kernels == (how == "kernels")
        about = case.about | {"how": how}
        rng = np.random.default_rng(0)
        table = rng.permutation(case.blocks)
        for tokens in case.steps:
            out += [row | about | {"tokens": tokens} for row in _step(case, clock, store, tokens, table)]
            for count in case.ends:
                blocks = -(-tokens // case.size)
                ends = [End([int(block) for block in rng.permutation(case.blocks)[:blocks]], tokens) for _ in range(count)]
                out += [row | about | {"tokens": tokens, "ends": count} for row in _sums(case, clock, store, ends)]
        if case.half_life is None:
            out += [{"what": "distinct", "rows": rows} | about | _distinct(case, clock, how, rows) for rows in (16, 64, 256)]
        out.append({"what": "memory", "bytes": store.nbytes} | about)
    return out


def _recorder(case: Case, device: Any, how: str, rows: int, store: TorchStore | None, observes: bool) -> Recorder:
    if how == "kernels":
        return KernelRecorder(case.layers, case.experts, case.top_k, device, store, observes)
    return PlainRecorder(case.layers, case.experts, case.top_k, rows, device, store)


def _step(case: Case, clock: Clock, store: TorchStore, tokens: int, table: Any) -> list[dict[str, Any]]:
    device = torch.device(clock.device)
    blocks = table[: -(-tokens // case.size)]
    slots = torch.from_numpy((blocks[:, None] * case.size + np.arange(case.size)).ravel()[:tokens]).to(device)
    recorder = _recorder(case, device, "kernels" if store.kernels else "plain", tokens, store, False)
    capture = Capture(case.layers, case.experts, case.top_k, store, recorder, lambda: slots)
    hooks = [capture.hook(layer) for layer in range(case.layers)]
    ids = [torch.rand(tokens, case.experts, device=device).topk(case.top_k, dim=1).indices.to(torch.int32) for _ in hooks]

    def record() -> None:
        for hook, of_layer in zip(hooks, ids, strict=True):
            hook(of_layer)

    record()
    rows = [{"what": "record", "mode": "eager"} | clock.timed(record)]
    if clock.on_gpu:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            record()
        rows.append({"what": "record", "mode": "graph"} | clock.timed(graph.replay))
    assert capture.off is None, capture.off
    return rows


def _sums(case: Case, clock: Clock, store: TorchStore, ends: list[End]) -> list[dict[str, Any]]:
    def encode(sums: Any) -> None:
        for row, end in enumerate(ends):
            recent = None if sums.recent is None else sums.recent[row]
            wire.encode(wire.Captured(case.top_k, end.tokens, int(sums.covered[row]), sums.counts[row], recent, case.half_life))

    return [
        {"what": "sums"} | clock.timed(lambda: store.sums(ends)),
        {"what": "read"} | clock.on_host(lambda: store.sums(ends), lambda pending: pending.get()),
        {"what": "encode"} | clock.on_host(lambda: store.sums(ends).get(), encode),
    ]


def _distinct(case: Case, clock: Clock, how: str, rows: int) -> dict[str, float]:
    """After a step that was replayed from a graph, as decode steps are."""
    device = torch.device(clock.device)
    recorder = _recorder(case, device, how, rows, None, True)
    ids = [torch.randint(case.experts, (rows, case.top_k), dtype=torch.int32, device=device) for _ in range(case.layers)]
    slots = torch.arange(rows, device=device)
    recorder.record(ids, slots, 0, rows, True)
    if not clock.on_gpu:
        return clock.timed(lambda: recorder.distinct(rows))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorder.record(ids, slots, 0, rows, True)

    def step() -> Any:
        graph.replay()
        return recorder.distinct(rows)

    return clock.timed(step)
