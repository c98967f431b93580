"""Engine features with the plugin: each starts, serves and is checked, and gets a verdict with its reason.

A check compares a prompt's counts with those of a plain server with the plugin. Kernels, chunks and batches change
the last bits of a gate, so choices between nearly equal experts may differ; what must hold is that every token is
counted, with top-k experts each."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from lab import prompts
from lab.engines import Engine, eldr, environment_of
from lab.legs import WANTED, Client
from lab.models import model_folder
from lab.say import say
from lab.servers import Server, total

from .common import Context, StepKind

READY_SECONDS = 200.0  # some are expected to fail, and may do so by waiting
PLUGIN = eldr("kv_both", half_life=64, metrics=True)
PLAIN = Engine("f-plain", model="tiny6", transfer=PLUGIN, cache="300M", share=0.04)
Figures = dict[str, Any]
Check = Callable[["Bench"], tuple[bool, Figures, str]]


@dataclass(frozen=True, slots=True)
class Feature:
    """trial: Python code that must run in the servers' environment; if it fails, no server is started."""

    name: str
    engine: Engine
    check: Check
    trial: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a check works with."""

    server: Server
    plain: Server | None
    asked: list[list[int]]
    is_dry: bool


def features(context: Context) -> list[Feature]:
    draft = str(model_folder(context.lab.stage, "tiny6"))
    small = replace(PLAIN, max_step_tokens=64, max_requests=8, block_size=32 if context.is_dry else 16, max_len=1024)
    return [
        Feature("prefix caching", replace(PLAIN, name="f-prefix", flags=("--enable-prompt-tokens-details",)), prefix_caching),
        Feature("chunked prefill, small pool with eviction", replace(small, name="f-small", blocks=64 if context.is_dry else 80), at_once),
        Feature("preemption", replace(small, name="f-preempt", blocks=64 if context.is_dry else 72, max_requests=16), preemption),
        Feature("abort", replace(PLAIN, name="f-abort"), abort),
        Feature("runner V2", replace(PLAIN, name="f-v2", runner="V2"), at_once),
        Feature(
            "FP8 experts", replace(PLAIN, name="f-fp8", model="wide", share=0.15, cache="1G", flags=("--quantization", "fp8")), at_once
        ),
        Feature(
            "speculative decoding, n-gram on the GPU",
            _speculating("f-ngram", {"method": "ngram_gpu", "prompt_lookup_max": 4, "prompt_lookup_min": 2}),
            speculation,
        ),
        Feature("speculative decoding, draft model", _speculating("f-draft", {"method": "draft_model", "model": draft}), speculation),
        Feature(
            "speculative decoding, n-gram on the CPU",
            _speculating("f-ngram-cpu", {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}),
            speculation,
            trial="import numba; numba.get_num_threads()",
        ),
        Feature("data-parallel ranks on one GPU", replace(PLAIN, name="f-dp", flags=("--data-parallel-size", "2")), at_once),
        Feature(
            "expert parallelism over two ranks of one GPU",
            replace(PLAIN, name="f-ep", flags=("--tensor-parallel-size", "2", "--enable-expert-parallel")),
            at_once,
        ),
    ]


def _speculating(name: str, config: dict[str, Any]) -> Engine:
    return replace(PLAIN, name=name, flags=("--speculative-config", json.dumps({"num_speculative_tokens": 3, **config})))


def chosen_features(context: Context) -> list[Feature]:
    known = features(context)
    if context.is_dry:
        return [feature for feature in known if feature.name == "preemption"]
    wanted = context.options.only.split(",") if context.options.only else None
    return [feature for feature in known if wanted is None or any(words in feature.name for words in wanted)]


def servers_of(context: Context) -> list[Engine]:
    plain = [] if context.is_dry else [PLAIN]
    return [*plain, *(feature.engine for feature in chosen_features(context) if not failed_trial(context, feature))]


def run(context: Context) -> None:
    chosen = chosen_features(context)
    result = context.result(name_of(context.options), "features", "features", {"features": [feature.name for feature in chosen]})
    if result.already_done():
        return
    servers = context.lab.ready(servers_of(context), must=False, seconds=READY_SECONDS)
    context.start_next()
    context.describe(result, PLAIN, servers.get("f-plain"))
    asked = prompts.capture_prompts(model_folder(context.lab.stage, "tiny6"))
    for feature in chosen:
        row = result.item("", {"feature": feature.name}, partial(judged, context, feature, servers, asked), needs_s=30)
        say(f"{row['feature']}: {row['verdict']}: {row['note']}")
    result.finish()


def failed_trial(context: Context, feature: Feature) -> str:
    """The error of a feature's trial, or an empty string."""
    if not feature.trial:
        return ""
    env = environment_of(feature.engine, context.lab.stage, context.lab.device, 0)
    done = subprocess.run([context.lab.stage.python, "-c", feature.trial], capture_output=True, text=True, env=env, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def judged(context: Context, feature: Feature, servers: dict[str, Server], asked: list[list[int]]) -> dict[str, Any]:
    if error := failed_trial(context, feature):
        return {"verdict": "not run", "note": f"`{feature.trial}` fails: {error[:400]}"}
    server = servers.get(feature.engine.name)
    if server is None:
        return {"verdict": "failed", "note": why_not(context, feature.engine.name)}
    try:
        ok, figures, note = feature.check(Bench(server, servers.get("f-plain"), asked, context.is_dry))
    except Exception as error:
        return {"verdict": "failed", "note": f"{type(error).__name__}: {str(error)[:600]}"}
    off = [
        line.split("eldr: ")[-1]
        for line in server.lines("eldr:")
        if "captured here" in line or "capture is off" in line or "carry no counts" in line
    ]
    if off:
        return {"verdict": "refused", "figures": figures, "note": off[0]}
    return {"verdict": "run" if ok else "failed", "figures": figures, "note": note}


def why_not(context: Context, name: str) -> str:
    """The last error in the log of a server that did not start, which may take several lines; that of the engine
    rather than of the API server, which only says that the engine failed."""
    lines = (context.lab.stage.run / f"{name}.log").read_text(errors="replace").splitlines()
    errors = [at for at, line in enumerate(lines) if re.search(r"\b\w*(Error|Exception):|validation error for", line)]
    of_engine = [
        at
        for at in errors
        if re.search(r"\((EngineCore|Worker)", lines[at]) and "See " not in lines[at] and "import_utils" not in lines[at]
    ]
    at = (of_engine or errors or [len(lines) - 1])[-1]
    words = " ".join(re.sub(r"^\([^)]*\)\s*", "", line).strip() for line in lines[at : at + 3])
    return f"The server did not start: {words[:400]}"


def counted(server: Server, prompt: list[int], max_tokens: int = 1) -> dict[str, Any]:
    _, answer = Client(server).complete(prompt, max_tokens, kv_transfer_params=WANTED)
    return {**answer["kv_transfer_params"]["eldr"], "usage": answer["usage"]}


def cells(sent: dict[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(sent["counts"]), "<u2").astype(int).reshape(sent["layers"], -1)


def checked(bench: Bench, answers: list[dict[str, Any]], asked: list[list[int]]) -> tuple[bool, Figures, str]:
    """Every token is covered, with top-k experts in each layer; and how many choices differ from a plain server."""
    without = [answer for answer in answers if "counts" not in answer]
    if without:
        return (
            False,
            {"withoutCounts": len(without)},
            f"{len(without)} of {len(answers)} hand-offs carry no counts: {without[0].get('off')}",
        )
    whole = sum(
        answer["covered"] == len(prompt) and bool((cells(answer).sum(axis=1) == len(prompt) * answer["top_k"]).all())
        for answer, prompt in zip(answers, asked, strict=True)
    )
    figures: Figures = {"prompts": len(asked), "whole": whole, "choices": int(sum(cells(answer).sum() for answer in answers))}
    if bench.plain is not None:
        plain = [counted(bench.plain, prompt) for prompt in asked]
        figures["differing"] = int(sum(np.abs(cells(a) - cells(b)).sum() // 2 for a, b in zip(answers, plain, strict=True)))
    note = f"Every token of {whole} of {len(asked)} prompts is counted"
    if "differing" in figures:
        note += f"; {figures['differing']} of {figures['choices']} choices differ from a plain server's"
    return whole == len(asked), figures, note + "."


def at_once(bench: Bench) -> tuple[bool, Figures, str]:
    with ThreadPoolExecutor(len(bench.asked)) as pool:
        answers = list(pool.map(lambda prompt: counted(bench.server, prompt), bench.asked))
    return checked(bench, answers, bench.asked)


def prefix_caching(bench: Bench) -> tuple[bool, Figures, str]:
    cold = [counted(bench.server, prompt) for prompt in bench.asked]
    warm = [counted(bench.server, prompt) for prompt in bench.asked]
    ok, figures, note = checked(bench, warm, bench.asked)
    figures["cachedTokens"] = sum((answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0 for answer in warm)
    figures["coldWarmDiffering"] = int(sum(np.abs(cells(a) - cells(b)).sum() // 2 for a, b in zip(cold, warm, strict=True)))
    return ok and figures["cachedTokens"] > 0, figures, f"{note} {figures['cachedTokens']} prompt tokens came from the cache."


def preemption(bench: Bench) -> tuple[bool, Figures, str]:
    """More tokens than the pool has: prompts of 150 tokens that grow to 330, 16 at once."""
    long = bench.asked[-1]
    asked = [[number + 5, *long[number : number + 149]] for number in range(16)]
    tokens = 120 if bench.is_dry else 180
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda prompt: counted(bench.server, prompt, tokens), asked))
    ok, figures, note = checked(bench, answers, asked)
    figures["preemptions"] = int(total(bench.server.metrics(), "vllm:num_preemptions_total"))
    return ok and figures["preemptions"] > 0, figures, f"{note} {figures['preemptions']} preemptions."


def abort(bench: Bench) -> tuple[bool, Figures, str]:
    """Clients that leave while their requests run; then the prompts again."""
    for prompt in bench.asked[:6]:
        body = json.dumps(
            {"model": "model", "prompt": prompt, "max_tokens": 1500, "ignore_eos": True, "stream": True, "kv_transfer_params": WANTED}
        ).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        with contextlib.closing(socket.create_connection(("127.0.0.1", bench.server.port))) as connection:
            connection.sendall(head + body)
            connection.recv(1024)
    end = time.monotonic() + 20
    while total(bench.server.metrics(), "vllm:num_requests_running") > 0 and time.monotonic() < end:
        time.sleep(0.1)
    running = int(total(bench.server.metrics(), "vllm:num_requests_running"))
    ok, figures, note = checked(bench, [counted(bench.server, prompt) for prompt in bench.asked], bench.asked)
    return ok and running == 0, {**figures, "running": running}, f"{note} 6 clients left before."


def speculation(bench: Bench) -> tuple[bool, Figures, str]:
    """Counts of prompts, and what drafts add to the union of a step."""
    ok, figures, note = at_once(bench)
    figures |= union(bench.server, bench.asked)
    if bench.plain is not None:
        figures |= {f"plain{key[0].upper()}{key[1:]}": value for key, value in union(bench.plain, bench.asked).items()}
    values = bench.server.metrics()
    figures["drafted"] = int(total(values, "vllm:spec_decode_num_draft_tokens_total"))
    figures["accepted"] = int(total(values, "vllm:spec_decode_num_accepted_tokens_total"))
    return ok, figures, f"{note} {figures['accepted']} of {figures['drafted']} drafts accepted."


def union(server: Server, asked: list[list[int]]) -> Figures:
    """Decode steps that the plugin observed while all prompts generate 64 tokens, and how long that took. Done once
    before, because the first drafts may compile kernels."""
    names = ("eldr_decode_steps_total", "eldr_experts_activated_total")

    def generate() -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(len(asked)) as pool:
            list(pool.map(lambda prompt: Client(server).complete(prompt, 64), asked))
        return time.perf_counter() - began

    generate()
    time.sleep(0.5)
    before = server.metrics()
    seconds = generate()
    time.sleep(0.5)
    after = server.metrics()
    steps, experts = (total(after, name) - total(before, name) for name in names)
    return {
        "observedSteps": int(steps),
        "expertsPerStepAllLayers": round(experts / steps, 2) if steps else 0.0,
        "warmSeconds64Tokens": round(seconds, 3),
    }


def name_of(options: argparse.Namespace) -> str:
    return "features"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", help="features whose names contain one of these words, separated by commas")


def kinds() -> Sequence[StepKind]:
    return [StepKind("features", "engine features with the plugin, one verdict each", lambda o: 240, run, servers_of, name_of, add_options)]
