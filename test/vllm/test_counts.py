"""Counts of a prefill worker equal an independent forward pass, for every prompt and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import counts_of, prompts, u16
from servers import Server, eldr, running, vllm

WANTED = {"do_remote_decode": True, "do_remote_prefill": False}
SMALL = ("--block-size", "32", "--num-gpu-blocks-override", "64", "--max-num-batched-tokens", "64", "--max-num-seqs", "8")
WAYS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "whole prompts, blocks of 128": ({}, ()),
    "chunks of 64, 64 blocks of 32, recent counts": ({"half_life": 16.5}, SMALL),
}


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[tuple[Server, ...]]:
    """All at once: a start is mostly imports, which use one core."""
    ways = enumerate(WAYS.values())
    with running(*(vllm(f"counts{n}", folder, eldr("kv_producer", **settings), *flags) for n, (settings, flags) in ways)) as all_of_them:
        yield all_of_them


@pytest.fixture(scope="module", params=range(len(WAYS)), ids=list(WAYS))
def served(request: pytest.FixtureRequest, servers: tuple[Server, ...]) -> tuple[Server, dict[str, Any]]:
    return servers[request.param], list(WAYS.values())[request.param][0]


def asked(server: Server, prompt: tuple[int, ...], max_tokens: int = 1) -> dict[str, Any]:
    body = {
        "model": "tiny",
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "kv_transfer_params": WANTED,
    }
    answer: dict[str, Any] = server.post("/v1/completions", body)["kv_transfer_params"]["eldr"]
    return answer


def check(sent: dict[str, Any], prompt: tuple[int, ...], settings: dict[str, Any]) -> None:
    assert "off" not in sent, sent
    assert (sent["tokens"], sent["covered"], sent["layers"], sent["experts"]) == (len(prompt), len(prompt), 6, 64)
    assert u16(sent["counts"], 6).tolist() == counts_of(prompt).astype(int).tolist()
    half_life = settings.get("half_life")
    assert sent.get("half_life") == half_life
    if half_life is not None:
        assert np.abs(u16(sent["recent"], 6) - counts_of(prompt, half_life) * 256).max() <= 0.5 + 1e-5


def test_one_by_one(served: Any) -> None:
    server, settings = served
    for prompt in prompts():
        check(asked(server, prompt), prompt, settings)


def test_many_at_once(served: Any) -> None:
    server, settings = served
    with ThreadPoolExecutor(len(prompts())) as pool:
        for prompt, sent in zip(prompts(), pool.map(lambda p: asked(server, p), prompts()), strict=True):
            check(sent, prompt, settings)


def test_generated_tokens_are_not_counted_also_when_requests_are_preempted(served: Any) -> None:
    server, settings = served
    # No shared prefixes, so that eight of them need more blocks than available after generating for a while.
    several = [(number + 5, *prompt[:149]) for number, prompt in enumerate(prompts()) if len(prompt) > 149]
    with ThreadPoolExecutor(len(several)) as pool:
        for prompt, sent in zip(several, pool.map(lambda p: asked(server, p, 200), several), strict=True):
            check(sent, prompt, settings)
    if settings:
        assert sum(server.values("vllm:num_preemptions_total")) > 0


def test_logs_what_it_captures(served: Any) -> None:
    server, _ = served
    assert server.logged("eldr: capturing 6 MoE layers, 64 experts, top 8;")
    assert not server.logged("capture is off")
