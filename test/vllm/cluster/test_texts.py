"""Texts through the gateway equal those of a single server; hand-offs contain counts; a decode worker reports its union."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from oracle import prompts
from servers import ELDR, ROOT, running, until
from test_counts import asked, check

from cluster.cluster import HALF_LIFE, Cluster, body, greedy


@pytest.fixture(scope="module")
def artifact(folder: Path) -> Path:
    """A fit of a trace of the same model, for two workers."""
    path = folder / "task.artifact.safetensors"
    trace = ROOT / "data" / "tiny6-long-task.calibration.safetensors"
    subprocess.run([*ELDR, "fit", str(trace), "--workers", "2", "--out", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def alone(started: Cluster) -> list[str]:
    return [greedy(started.alone, prompt) for prompt in prompts()]


def test_counts_come_with_the_blocks(cluster: Cluster) -> None:
    for prompt in prompts()[:4]:
        check(asked(cluster.prefill, prompt), prompt, {"half_life": HALF_LIFE})


@pytest.mark.parametrize("policy", ["round_robin", "union", "eldr"])
def test_texts_through_the_gateway_are_those_of_a_single_server(cluster: Cluster, alone: list[str], artifact: Path, policy: str) -> None:
    flags = ("--policy", policy, *(("--artifact", str(artifact)) if policy == "eldr" else ()))
    with running(cluster.gateway(policy, *flags)) as (front,):
        assert [greedy(front, prompt) for prompt in prompts()] == alone
        with ThreadPoolExecutor(len(alone)) as pool:
            assert list(pool.map(lambda prompt: greedy(front, prompt), prompts())) == alone
        assert sum(front.values("eldr_signature_rejects_total")) == 0, front.get("/metrics")
        # All but the first follow the policy; union has no shape before the first hand-off.
        assert sum(front.values("eldr_decisions_total", f'policy="{policy}"')) >= 2 * len(alone) - 1, front.get("/metrics")
        cluster.until_idle(front)


def test_lists_of_prompts_and_several_choices_leave_no_blocks_behind(cluster: Cluster, alone: list[str]) -> None:
    cluster.until_idle()
    expired = cluster.expired()
    with running(cluster.gateway("several")) as (front,):
        answer = front.post("/v1/completions", body([list(prompt) for prompt in prompts()[1:4]], n=2))
        texts = [choice["text"] for choice in sorted(answer["choices"], key=lambda choice: choice["index"])]
        assert texts == [text for text in alone[1:4] for _ in range(2)]
        cluster.until_idle(front)
        # Each part's blocks were read, and none waited for its lease to expire.
        assert cluster.expired() == expired


def test_a_decode_worker_shows_its_union(cluster: Cluster) -> None:
    one = cluster.decode[0]
    greedy(one, prompts()[1])
    until(lambda: bool(one.values("eldr_decode_steps_total")), "no decode step was reported")
    layers, (steps,) = one.values("eldr_experts_activated_total"), one.values("eldr_decode_steps_total")
    assert len(layers) == 6
    assert all(8 <= total / steps <= 64 for total in layers)
    assert one.values("eldr_decode_batch")[0] >= 1
