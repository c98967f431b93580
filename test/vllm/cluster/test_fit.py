"""A fit on a trace captured on this cluster separates domains onto different workers, which then use fewer experts per step."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers import ANSWER_SECONDS, ELDR, Server, running, until
from summary import show

from cluster import domains
from cluster.cluster import Cluster, body
from cluster.stream import Stream

CAPTURED, ROUTED = 40, 20  # of each domain
AT_ONCE = 16
TOKENS = 160
LAYERS, EXPERTS = 6, 64  # of the model


@pytest.fixture(scope="module")
def artifact(started: Cluster, folder: Path) -> Path:
    prompts = domains.write(folder / "captured.jsonl", domains.made(CAPTURED, seed=1))
    trace, path = folder / "captured.trace.safetensors", folder / "captured.artifact.safetensors"
    where = ("--url", started.alone.url, "--prompts", str(prompts), "--out", str(trace))
    subprocess.run([*ELDR, "calibrate", *where, "--steps", "32", "--timeout", str(ANSWER_SECONDS), "--quiet"], check=True)
    subprocess.run([*ELDR, "fit", str(trace), "--workers", "2", "--out", str(path)], check=True)
    return path


@dataclass
class Work:
    """Totals of a decode worker since its start."""

    steps: float
    requests: float
    experts: float

    @staticmethod
    def of(server: Server) -> Work:
        names = ("eldr_decode_steps_total", "eldr_decode_step_requests_total", "eldr_experts_activated_total")
        return Work(*(sum(server.values(name)) for name in names))

    def since(self, before: Work) -> Work:
        return Work(self.steps - before.steps, self.requests - before.requests, self.experts - before.experts)

    def __add__(self, other: Work) -> Work:
        return Work(self.steps + other.steps, self.requests + other.requests, self.experts + other.experts)

    @property
    def batch(self) -> float:
        return self.requests / self.steps

    @property
    def experts_a_step(self) -> float:
        return self.experts / self.steps / LAYERS

    def experts_at(self, batch: float) -> float:
        """Scales the union to another batch size, assuming that each request uses each expert with the same probability."""
        missed = (1 - self.experts_a_step / EXPERTS) ** (batch / self.batch)
        return EXPERTS * (1 - missed)

    def row(self) -> tuple[str, str]:
        return f"{self.batch:.2f}", f"{self.experts_a_step:.2f}"


def mixed(wave: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Shuffled, so that round robin does not align domains with workers."""
    return random.Random(0).sample(wave, len(wave))


def under(policy: str, cluster: Cluster, artifact: Path) -> tuple[Counter[tuple[str, str]], list[Work]]:
    """Requests by domain and worker, and the totals of each worker."""
    asked = domains.made(ROUTED, seed=2)  # not in the calibration
    with running(cluster.gateway(f"fit-{policy}", "--policy", policy, "--artifact", str(artifact))) as (front,):
        before = [Work.of(worker) for worker in cluster.decode]

        def ask(pair: tuple[str, str]) -> tuple[str, str]:
            stream = Stream(front, body(pair[1], max_tokens=TOKENS)).begin().read()
            assert (stream.status, stream.done, stream.error) == (200, True, None)
            return pair[0], stream.worker

        went: Counter[tuple[str, str]] = Counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # In waves, so that batches are similar: the same number of requests of each domain start and end together.
            for first in range(0, len(asked), AT_ONCE):
                went.update(pool.map(ask, mixed(asked[first : first + AT_ONCE])))
        cluster.until_idle(front)
        assert sum(front.values("eldr_signature_rejects_total")) == 0, front.get("/metrics")

    def done() -> list[Work]:
        return [Work.of(worker).since(start) for worker, start in zip(cluster.decode, before, strict=True)]

    # Each token is one request of one decode step; reports follow shortly after the responses.
    tokens = len(asked) * TOKENS
    until(lambda: sum(work.requests for work in done()) == tokens, f"decode workers report {tokens} tokens: {done()}")
    return went, done()


def test_domains_land_on_different_workers_and_share_experts_there(cluster: Cluster, artifact: Path) -> None:
    rows, seen = [], {}
    for policy in ("round_robin", "band", "eldr"):
        went, works = under(policy, cluster, artifact)
        seen[policy] = went, works[0] + works[1]
        for name, work in (("d0", works[0]), ("d1", works[1]), ("both", seen[policy][1])):
            split = " ".join(f"{domain} {went[domain, name]}" for domain in domains.PARTS) if name != "both" else ""
            at_that_batch = f"{seen['round_robin'][1].experts_at(work.batch):.2f}"
            rows.append((policy, name, split, *work.row(), at_that_batch))
    head = ("policy", "worker", "requests", "batch", "experts a step and layer", "round_robin at that batch")
    show(f"distinct experts of a decode step, {AT_ONCE} requests at once, a fit on {4 * CAPTURED} captured ones", head, rows)

    # The paper's rule sends a request to its domain's worker unless the two loads differ much; `eldr` gives up more of that for
    # even loads, most of all in batches as small as these, so only its experts are compared.
    went, _ = seen["band"]
    homes = {domain: max(("d0", "d1"), key=lambda worker: went[domain, worker]) for domain in domains.PARTS}
    assert set(homes.values()) == {"d0", "d1"}
    at_home = sum(went[domain, worker] for domain, worker in homes.items())
    assert at_home >= 0.85 * 4 * ROUTED, went
    for policy in ("band", "eldr"):
        with_fit = seen[policy][1]
        # Batch sizes differ slightly: scale round robin to the batch size of the fit.
        expected = seen["round_robin"][1].experts_at(with_fit.batch)
        assert with_fit.experts_a_step < 0.97 * expected, (policy, expected, rows)
