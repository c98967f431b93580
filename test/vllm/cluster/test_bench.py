"""`vllm bench serve` and `eldr bench` through the gateway: no errors, and the same figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from servers import ELDR, MODEL, Server, running
from summary import show

from cluster import domains
from cluster.cluster import Cluster
from cluster.wire import Wire

ROUNDS, REQUESTS, TOKENS = 5, 8, 48
NAMES = ("ttft", "tpot", "e2el")


class VllmBench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = (folder / "bench-serve.log").open("w")
        command = [sys.executable, str(Path(__file__).parent / "bench_serve.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def run(self, *arguments: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        result = self.folder / "bench-serve.json"
        result.unlink(missing_ok=True)
        asked = [*arguments, "--save-result", "--result-dir", str(self.folder), "--result-filename", result.name]
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line == "ended\n":
                return dict(json.loads(result.read_text()))
        raise RuntimeError("vllm bench serve ended\n" + "".join(said[-20:]) + (self.folder / "bench-serve.log").read_text()[-4000:])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def front(started: Cluster) -> Iterator[Server]:
    started.repair()
    with running(started.gateway("bench", "--policy", "round_robin")) as (gateway,):
        yield gateway
        started.until_idle(gateway)


@pytest.fixture(scope="module")
def bench(folder: Path) -> Iterator[VllmBench]:
    process = VllmBench(folder)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def files(folder: Path) -> tuple[Path, Path]:
    """The same prompts in each client's format. Latin letters only: where a token ends inside a letter vLLM sends an event without text,
    which only one of the two counts as a token."""
    rows = [text for domain, text in domains.made(REQUESTS, seed=3) if domain in ("code", "law")][:REQUESTS]
    paths = folder / "bench-eldr.jsonl", folder / "bench-vllm.jsonl"
    for path, length in zip(paths, ("max_tokens", "output_tokens"), strict=True):
        path.write_text("".join(json.dumps({"prompt": text, length: TOKENS}) + "\n" for text in rows))
    return paths


def through(url: str) -> list[str]:
    where = ["--base-url", url, "--model", "tiny", "--tokenizer", str(MODEL), "--temperature", "0", "--ignore-eos"]
    return [*where, "--percentile-metrics", ",".join(NAMES), "--disable-tqdm"]


@pytest.mark.parametrize(("backend", "path"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_vllm_bench_serve_has_no_error(started: Cluster, front: Server, bench: VllmBench, backend: str, path: str) -> None:
    load = [
        "--dataset-name",
        "random",
        "--random-input-len",
        "100",
        "--random-output-len",
        "16",
        "--num-prompts",
        "30",
        "--request-rate",
        "15",
    ]
    result = bench.run(*through(front.url), "--backend", backend, "--endpoint", path, *load)
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (30, 0, 480)
    started.until_idle(front)


def test_eldr_bench_agrees_with_it(started: Cluster, front: Server, bench: VllmBench, folder: Path, files: tuple[Path, Path]) -> None:
    """Within 3 % at p50 plus the spread of the rounds. Runs on a shared machine differ, so each is compared with the wire times of the
    same run, and the two clients by their ratios to them. One stream at a time: two decode workers that step without pause use both
    cores, and the client's own work would be part of what it measures. TTFT is only shown: of its 50 ms, a client that has just started
    takes several to put the request on the wire on a busy machine."""
    seen: dict[str, list[tuple[float, float]]] = {f"{client} {name}": [] for client in ("eldr", "vllm") for name in NAMES}
    with Wire(front.url) as wire:
        for _ in range(ROUNDS):
            for client in ("eldr", "vllm"):
                wire.requests.clear()
                figures = by_eldr(wire.url, files[0], folder) if client == "eldr" else by_vllm(wire.url, files[1], bench)
                # vLLM's client sends one request before it starts.
                passed = wire.p50(REQUESTS, TOKENS)
                for name in NAMES:
                    seen[f"{client} {name}"].append((figures[name], passed[name]))
    started.until_idle(front)
    rows, wrong = [], []
    for name in NAMES:
        of = {client: seen[f"{client} {name}"] for client in ("eldr", "vllm")}
        pairs = zip(of["eldr"], of["vllm"], strict=True)
        ratio, error = compared([(ours[0] / ours[1]) / (theirs[0] / theirs[1]) for ours, theirs in pairs])
        times = (median(pair[side] for pair in of[client]) for client in of for side in (0, 1))
        rows.append((name, *(f"{time:.2f} ms" for time in times), f"{ratio:.4f} ± {error:.4f}"))
        if name != "ttft" and abs(ratio - 1) > min(0.03 + 4 * error, 0.1):
            wrong.append(name)
    head = ("p50", "eldr bench", "its wire", "vllm bench serve", "its wire", "eldr / vllm")
    show(f"two clients on one gateway, medians of {ROUNDS} rounds of {REQUESTS} requests of {TOKENS} tokens, one by one", head, rows)
    assert wrong == [], rows


def compared(ratios: list[float]) -> tuple[float, float]:
    """Median of the rounds' ratios and its standard error from their median absolute deviation: single rounds may be outliers."""
    middle = median(ratios)
    spread = 1.4826 * median(abs(ratio - middle) for ratio in ratios)
    return middle, 1.2533 * spread / math.sqrt(len(ratios))


def by_vllm(url: str, prompts: Path, bench: VllmBench) -> dict[str, float]:
    of_file = ["--dataset-name", "custom", "--dataset-path", str(prompts), "--skip-chat-template", "--custom-output-len", "-1"]
    load = ["--backend", "openai", *of_file, "--disable-shuffle", "--num-prompts", str(REQUESTS), "--max-concurrency", "1"]
    result = bench.run(*through(url), *load)
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (REQUESTS, 0, REQUESTS * TOKENS)
    return {name: result[f"median_{name}_ms"] for name in NAMES}


def by_eldr(url: str, prompts: Path, folder: Path) -> dict[str, float]:
    out = folder / "eldr-bench.json"
    command = [*ELDR, "bench", "--url", url, "--concurrency", "1", "--requests", str(REQUESTS), "--prompts", str(prompts)]
    subprocess.run([*command, "--quiet", "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
    result = json.loads(out.read_text())
    assert (result["requests"]["ok"], result["requests"]["failed"], result["tokens"]["outputMean"]) == (REQUESTS, 0, TOKENS)
    return {name: result[{"e2el": "e2eMs"}.get(name, f"{name}Ms")]["p50"] for name in NAMES}
