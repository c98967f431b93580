"""The whole system: a prefill worker, two decode workers, NIXL between them, the gateway in front."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from oracle import prompts
from servers import ROOT, Server, both, gateway, running, vllm
from test_counts import asked, check

Workers = tuple[Server, Server, Server]


@pytest.fixture(scope="module")
def workers(folder: Path) -> Iterator[Workers]:
    decoders = (vllm(name, folder, both("kv_consumer")) for name in ("decode0", "decode1"))
    # The half-life of the artifact below: a fit takes recent counts where a trace has them and they are better.
    with running(vllm("prefill", folder, both("kv_producer", half_life=64)), *decoders) as (prefill, one, two):
        yield prefill, one, two


@pytest.fixture(scope="module")
def artifact(folder: Path) -> Path:
    """Of a trace of the same model, for two workers."""
    path = folder / "task.artifact.safetensors"
    trace = ROOT / "data" / "tiny6-long-task.calibration.safetensors"
    subprocess.run(["node", str(ROOT / "dist" / "cli" / "main.js"), "fit", str(trace), "--workers", "2", "--out", str(path)], check=True)
    return path


def body(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True, **more}


def greedy(server: Server, prompt: tuple[int, ...]) -> str:
    return str(server.post("/v1/completions", body(list(prompt)))["choices"][0]["text"])


def sums(server: Server, name: str) -> list[float]:
    return [value for key, value in server.metrics().items() if key.startswith(name + "{") or key == name]


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def test_counts_come_with_the_blocks(workers: Workers) -> None:
    for prompt in prompts()[:4]:
        check(asked(workers[0], prompt), prompt, {"half_life": 64})


@pytest.mark.parametrize("policy", ["round_robin", "union", "eldr"])
def test_texts_through_the_gateway_are_those_of_a_single_server(workers: Workers, folder: Path, artifact: Path, policy: str) -> None:
    prefill, one, two = workers
    alone = [greedy(one, prompt) for prompt in prompts()]
    flags = ("--policy", policy, *(("--artifact", str(artifact)) if policy == "eldr" else ()))
    with running(gateway(folder, [prefill], [one, two], *flags, name=f"gateway-{policy}")) as (front,):
        assert [greedy(front, prompt) for prompt in prompts()] == alone
        with ThreadPoolExecutor(len(alone)) as pool:
            assert list(pool.map(lambda prompt: greedy(front, prompt), prompts())) == alone
        assert sum(sums(front, "eldr_signature_rejects_total")) == 0, front.get("/metrics")
        assert sum(sums(front, "eldr_worker_inflight")) == 0


def test_lists_of_prompts_and_several_choices_leave_no_blocks_behind(workers: Workers, folder: Path) -> None:
    prefill, one, two = workers
    some = [list(prompt) for prompt in prompts()[1:4]]
    alone = [greedy(one, tuple(prompt)) for prompt in some]
    with running(gateway(folder, [prefill], [one, two], name="gateway-several")) as (front,):
        answer = front.post("/v1/completions", body(some, n=2))
        texts = [choice["text"] for choice in sorted(answer["choices"], key=lambda choice: choice["index"])]
        assert texts == [text for text in alone for _ in range(2)]
    until(lambda: sum(sums(prefill, "vllm:kv_cache_usage_perc")) == 0, "the prefill worker still holds blocks")


def test_a_decode_worker_shows_its_union(workers: Workers) -> None:
    one = workers[1]
    greedy(one, prompts()[1])
    until(lambda: bool(sums(one, "eldr_decode_steps_total")), "no decode step was reported")
    layers, (steps,) = sums(one, "eldr_experts_activated_total"), sums(one, "eldr_decode_steps_total")
    assert len(layers) == 6
    assert all(8 <= total / steps <= 64 for total in layers)
    assert sums(one, "eldr_decode_batch")[0] >= 1
