"""Counts of any schedule equal those of a cold run: chunks, prefix hits, eviction, preemption, aborts, loads,
steps in flight."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_vllm.layout import Layout
from eldr_vllm.messages import Later
from eldr_vllm.store import NumpyStore

from .engine import EXPERTS, LAYERS, TOP_K, Engine, Request, experts_of

KV = {"do_remote_decode": True, "do_remote_prefill": False}


def stores() -> list[Any]:
    class Now(NumpyStore):
        """Returns deferred sums, as the store of a device does."""

        def sums(self, ends: Any) -> Any:
            values = super().sums(ends)
            return Later(lambda: values)

        def rows(self, slots: Any) -> Any:
            values = super().rows(slots)
            return Later(lambda: values)

    made: list[Any] = [pytest.param(Now, id="numpy")]
    try:
        from eldr_vllm.torch_store import TorchStore
    except ImportError:
        return made

    class Fed(TorchStore):
        def scatter(self, slots: Any, ids: Any) -> None:
            import torch

            super().scatter(torch.from_numpy(slots), torch.from_numpy(ids))

    return [*made, pytest.param(lambda layout: Fed(layout, "cpu"), id="torch")]


def check(request: Request, layout: Layout) -> None:
    """Compares the hand-off of a finished request with that of its prompt alone."""
    assert request.result is not None
    sent = request.result["eldr"]
    assert "off" not in sent, sent
    assert request.covered is not None
    tokens = len(request.prompt)
    assert (sent["tokens"], sent["covered"]) == (tokens, len(request.covered))
    counts, recent = np.zeros((LAYERS, EXPERTS), int), np.zeros((LAYERS, EXPERTS))
    for position in request.covered:
        ids = experts_of(request.prompt[: position + 1])
        for layer in range(LAYERS):
            counts[layer, ids[layer]] += 1
            if layout.half_life is not None:
                recent[layer, ids[layer]] += 2.0 ** ((position + 1 - tokens) / layout.half_life)
    assert u16(sent["counts"]).tolist() == counts.tolist()
    assert ("recent" in sent) == (layout.half_life is not None)
    if "recent" in sent:
        # Weights are added up in fixed point, so values next to a half may differ.
        assert np.abs(u16(sent["recent"]) - recent * 256).max() <= 0.5 + 1e-5
    wanted = request.kv_transfer_params or {}
    if "eldr" in wanted:
        generated = tuple(request.generated)
        got = np.frombuffer(base64.b64decode(sent["decode"]["ids"]), np.uint8).reshape(-1, LAYERS, TOP_K)
        # The last generated token is never fed back, so it has no experts.
        assert len(got) == sent["decode"]["steps"] == len(generated) - 1
        for step, ids in enumerate(got):
            assert ids.tolist() == experts_of(request.prompt + generated[: step + 1]).tolist()


def u16(text: str) -> Any:
    return np.frombuffer(base64.b64decode(text), "<u2").reshape(LAYERS, EXPERTS).astype(int)


def drawn_request(rng: random.Random, number: int, prompts: list[tuple[int, ...]], loads: bool) -> Request:
    prompt = rng.choice(prompts)
    if rng.random() < 0.6:  # a known prefix and a new end
        prompt = prompt[: rng.randrange(1, len(prompt) + 1)] + tuple(rng.randrange(50) for _ in range(rng.randrange(0, 9)))
    new_tokens = rng.choice([1, 1, 1, 2, 7, 15])
    params: dict[str, Any] | None = dict(KV) if rng.random() < 0.85 else None
    if rng.random() < 0.3:
        params = {**(params or {}), "eldr": {"record": "decode"}}
    stops_at = rng.randrange(1, new_tokens + 1)
    external = rng.randrange(1, 4) if loads and rng.random() < 0.3 else 0
    return Request(f"r{number}", prompt, new_tokens, stops_at, params, external, loads_later=rng.random() < 0.6)


def play(seed: int, half_life: float | None, size: int, blocks: int, budget: int, in_flight: int, loads: bool,
         make_store: Callable[[Layout], Any], stages: list[list[int]] | None = None) -> Engine:  # fmt: skip
    rng = random.Random(seed)
    layout = Layout(LAYERS, EXPERTS, TOP_K, blocks, size, half_life)
    engine = Engine(seed, layout, make_store, budget, in_flight, stages)
    longest = (blocks - 1) * size - 16
    lengths = [1, size, 2 * size, size + 1, rng.randrange(1, longest), longest // 2]
    prompts = [tuple(rng.randrange(50) for _ in range(max(1, min(length, longest - 10)))) for length in lengths]
    requests: list[Request] = []
    for number in range(25):
        requests.append(drawn_request(rng, number, prompts, loads))
        engine.add(requests[-1])
        for _ in range(rng.randrange(0, 4)):
            engine.step()
        if rng.random() < 0.08:
            live = [request for request in requests if not request.ended]
            if live:
                engine.abort(rng.choice(live))
    for _ in range(2000):
        if not (engine.waiting or engine.running or engine.loading or engine.pending):
            break
        engine.step()
    assert all(request.ended for request in requests)
    for request in requests:
        if request.result is not None:
            check(request, layout)
    wanted = [request for request in requests if request.kv_transfer_params is not None]
    assert sum(request.result is not None for request in wanted) >= len(wanted) // 2
    assert all(request.result is None for request in requests if request.kv_transfer_params is None)
    assert not engine.hand_offs._followed
    assert not engine.hand_offs._waiting
    assert not engine.hand_offs._held
    return engine


@pytest.mark.parametrize("make_store", stores())
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    half_life=st.sampled_from([None, 1, 2.5, 64]),
    size=st.sampled_from([1, 4, 16]),
    blocks=st.integers(14, 40),
    budget=st.sampled_from([5, 16, 64, 512]),
    in_flight=st.sampled_from([1, 2]),
    loads=st.booleans(),
)
def test_any_schedule_gives_the_counts_of_a_cold_run(make_store: Any, **drawn: Any) -> None:
    blocks = drawn["blocks"] * (6 if drawn["size"] == 1 else 1)
    play(**(drawn | {"blocks": blocks}), make_store=make_store)


@pytest.mark.parametrize("make_store", stores())
def test_schedules_cover_all_cases(make_store: Any) -> None:
    seen: dict[str, int] = {}
    for seed in range(16):
        engine = play(seed, 16, 4, 20, 16, 1 + seed % 2, seed % 2 == 0, make_store)
        for key, times in engine.seen.items():
            seen[key] = seen.get(key, 0) + times
    assert min(seen.values()) >= 3, seen


@pytest.mark.parametrize("make_store", stores())
@pytest.mark.parametrize("stages", [[[0], [1, 2]], [[0, 1, 2], []], [[0], [1], [2]]])
def test_pipeline_stages_are_joined(make_store: Any, stages: list[list[int]]) -> None:
    for seed in range(6):
        play(seed, 8, 4, 24, 32, 2, False, make_store, stages)
