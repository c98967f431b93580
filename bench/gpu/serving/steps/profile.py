"""A cost profile from a served engine, alone on the GPU: the steps that it really ran, host, scheduler and sampling
included, at several batch sizes and mixes of prompts.

The widened model gets real prompts: batches of one domain use fewer experts than mixed ones. Models with dummy
weights get random tokens: copies of one prompt use the same experts, so the number of different prompts in a
batch sets the number of experts."""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab import load, prompts, step_log
from lab.engines import Engine, eldr
from lab.legs import Client
from lab.models import config_of, facts
from lab.say import say
from lab.servers import Server
from lab.stats import linear_fit, quantiles

from . import engines
from .common import TEMPERATURE, Context, StepKind

SHAPES = ("wide", "qwen3-30b-a3b", "gpt-oss-120b", "gemma-4-26b-a4b")
MOST_STEPS = 4000
# Batch size, and the domain of its prompts.
WIDE_CELLS = [(size, "mixed") for size in (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64)]
WIDE_CELLS += [(size, domain) for size in (8, 16, 32) for domain in ("code", "zh")]
# Batch size, and the number of different prompts in it.
DUMMY_CELLS = [(1, 1), (2, 2), (4, 1), (4, 4), (8, 1), (8, 8), (16, 2), (16, 16), (32, 4), (32, 32), (48, 48), (64, 8), (64, 64)]
PREFILL_TOKENS = (128, 512, 1024, 2000)


def servers_of(context: Context) -> list[Engine]:
    shape = context.options.shape
    if shape == "wide":
        return [engines.alone(context)]
    flags: tuple[str, ...] = ("--moe-backend", context.options.moe_backend) if context.options.moe_backend else ()
    return [
        Engine(
            "alone",
            model=shape,
            transfer=eldr("kv_both", metrics=True, capture=False),
            graph_sizes=engines.FINE_SIZES,
            prefix_caching=False,
            cache="16G",
            share=0.7,
            inside={"steps": context.steps_file("alone")},
            flags=flags,
        )
    ]


def run(context: Context) -> None:
    options = context.options
    is_wide = options.shape == "wide"
    cells: list[tuple[int, Any]] = list(WIDE_CELLS if is_wide else DUMMY_CELLS)
    seconds = options.seconds
    if context.is_dry:
        cells, seconds = [(1, "mixed"), (2, "mixed"), (2, "code")] if is_wide else [(1, 1), (2, 2)], 1.0
    settings = {"shape": options.shape, "seconds": seconds, "cells": [list(cell) for cell in cells], "temperature": TEMPERATURE}
    if options.moe_backend:
        settings["moeBackend"] = options.moe_backend
    result = context.result(name_of(options), "profile", "profile", settings)
    if result.is_complete:
        return
    chosen = servers_of(context)
    server = context.lab.ready(chosen)["alone"]
    context.describe(result, chosen[0], server)
    result.body["log"] = [line.split("eldr: ")[-1] for line in server.lines("eldr:")][:6]
    result.body["kv"] = {"bytesPerToken": kv_bytes(context, options.shape)}
    for index, (size, mix) in enumerate(cells):
        identity = {"concurrency": size, "domain": mix} if is_wide else {"concurrency": size, "prompts": mix}
        measure = wide_cell if is_wide else dummy_cell
        cell = result.item(
            "cells",
            identity,
            lambda size=size, mix=mix, index=index: measure(context, server, size, mix, seconds, index),
            needs_s=seconds + 20,
        )
        say(identity, {key: cell[key] for key in ("stepMs", "experts", "steps")})
    result.part("prefill", lambda: prefill(context, server, options.shape), needs_s=20)
    join(result.body, options.shape, context)
    say("fit", result.body["fit"])
    result.finish()


def wide_cell(context: Context, server: Server, size: int, domain: str, seconds: float, index: int) -> dict[str, Any]:
    stage = context.lab.stage
    rows = prompts.rows_of(stage, "held-out") + prompts.rows_of(stage, "calibration")
    rows = [row for row in rows if domain in ("mixed", row["domain"])]
    tokens = (4, 8) if context.is_dry else (112, 208)
    file = prompts.write_load(stage.run / "cell.jsonl", prompts.load_rows(rows, 1500, index, tokens))
    sent = load.send_load(
        context.lab, server, "cell", file, seconds + 90, concurrency=size, duration=seconds, warmupSeconds=1, extraBody={"temperature": TEMPERATURE}
    )
    time.sleep(1.2)
    first = sent["startedAt"] / 1000 + 1
    return {"outputTokens": list(tokens), "tpotMs": sent["tpotMs"], "itlMs": sent["itlMs"], **recorded(context, size, first, first + seconds)}


def dummy_cell(context: Context, server: Server, size: int, different: int, seconds: float, index: int) -> dict[str, Any]:
    """A closed loop of requests without a tokenizer. Copies of a prompt start together and stay together."""
    rng = random.Random(index)
    vocabulary = config_of(context.lab.stage, context.options.shape, context.is_dry)["vocab_size"]
    asked = [[rng.randrange(4, vocabulary) for _ in range(32)] for _ in range(different)]
    tokens = 8 if context.is_dry else 160
    end = time.time() + 1 + seconds
    going = [True]
    barrier = threading.Barrier(size, action=lambda: going.__setitem__(0, time.time() < end))

    def one(number: int) -> None:
        client = Client(server)
        while barrier.wait(120) >= 0 and going[0]:
            client.complete(asked[number % different], tokens)

    first = time.time() + 1
    with ThreadPoolExecutor(size) as pool:
        list(pool.map(one, range(size)))
    time.sleep(1.2)
    return {"outputTokens": [tokens, tokens], **recorded(context, size, first, time.time())}


def recorded(context: Context, size: int, begin: float, end: float) -> dict[str, Any]:
    """Steps of the full batch; while requests start and end, batches are smaller."""
    rows = step_log.read_rows(context.lab.stage.run / "alone.steps")
    steps = step_log.decode_steps(rows, begin, end)
    full = [step for step in steps if step.batch == size] if len(steps) > 200 else steps
    kept = [steps[index] for index in step_log.thinned(len(steps), 600)]
    return {
        "steps": len(steps),
        "experts": step_log.work(steps).get("experts"),
        "stepMs": quantiles([step.ms for step in full]) if full else {"count": 0},
        "raw": [
            [round(step.ms, 4), step.batch, round(step.mean_experts, 4), round(step.mean_read, 4), step.context] if step.experts else
            [round(step.ms, 4), step.batch, None, None, step.context]
            for step in kept
        ],
    }


def prefill(context: Context, server: Server, shape: str) -> dict[str, Any]:
    """One prompt at a time: from planning its step to its output."""
    rng = random.Random(5)
    vocabulary = config_of(context.lab.stage, shape, context.is_dry)["vocab_size"]
    client, lengths = Client(server), (32, 64) if context.is_dry else PREFILL_TOKENS
    asked = [length for length in lengths for _ in range(2 if context.is_dry else 8)]
    began = time.time()
    for length in asked:
        client.complete([rng.randrange(4, vocabulary) for _ in range(length)], 1)
    time.sleep(1.2)
    rows = [row for row in step_log.read_rows(context.lab.stage.run / "alone.steps") if row[1] >= began and row[2] == 1 and row[3] in lengths]
    return {"ms": [round(1000 * (row[0] - row[1]), 4) for row in rows], "tokens": [row[3] for row in rows]}


def join(body: dict[str, Any], shape: str, context: Context) -> None:
    """All cells' steps as columns, and the fit."""
    columns: dict[str, list[Any]] = {"ms": [], "batch": [], "experts": [], "readExperts": [], "contextTokens": [], "cell": []}
    recorded_steps = sum(cell["steps"] for cell in body["cells"])
    raw = [(index, row) for index, cell in enumerate(body["cells"]) for row in cell["raw"]]
    kept = [raw[index] for index in step_log.thinned(len(raw), MOST_STEPS)]
    if any(row[2] is not None for _, row in kept):  # a few steps at the end of a cell are not counted
        kept = [(cell, row) for cell, row in kept if row[2] is not None]
    else:
        del columns["experts"], columns["readExperts"]
    for cell, (ms, batch, experts, read, tokens) in kept:
        values = {"ms": ms, "batch": batch, "experts": experts, "readExperts": read, "contextTokens": tokens, "cell": cell}
        for name, column in columns.items():
            column.append(values[name])
    body["steps"] = columns
    body["kept"] = {"recorded": recorded_steps, "kept": len(kept), "how": "evenly spaced, at most 600 of each cell"}
    body["fit"] = fit_of(columns, facts(context.lab.stage, shape, context.is_dry)["layers"])
    for cell in body["cells"]:
        cell.pop("raw", None)


def fit_of(columns: dict[str, list[Any]], layers: int) -> dict[str, Any]:
    """ms = base + perExpert · experts · layers + perRequest · batch; jitter: the residuals, relative to the fit."""
    if "experts" not in columns or len(columns["ms"]) < 10:
        return {"count": len(columns["ms"])}
    fit = linear_fit([columns["experts"], columns["batch"]], columns["ms"])
    base, expert, request = fit.coefficients
    predicted = [base + expert * e + request * b for e, b in zip(columns["experts"], columns["batch"], strict=True)]
    ratios = sorted(ms / guess for ms, guess in zip(columns["ms"], predicted, strict=True) if guess > 0)
    return {
        "count": fit.count,
        "baseMs": round(base, 4),
        "usPerExpertAndLayer": round(1000 * expert / layers, 4),
        "usPerRequest": round(1000 * request, 4),
        "errors": {"baseMs": round(fit.errors[0], 4), "usPerExpertAndLayer": round(1000 * fit.errors[1] / layers, 4), "usPerRequest": round(1000 * fit.errors[2], 4)},
        "r2": round(fit.r2, 4),
        "jitter": {"p1": at(ratios, 0.01), "p50": at(ratios, 0.5), "p99": at(ratios, 0.99)},
    }


def at(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)


def kv_bytes(context: Context, shape: str) -> int:
    config = config_of(context.lab.stage, shape, context.is_dry)
    heads = config["num_key_value_heads"]
    return int(config["num_hidden_layers"] * 2 * heads * config["head_dim"] * (4 if context.is_dry else 2))


def name_of(options: argparse.Namespace) -> str:
    return f"profile-{options.shape}" + (f"-{options.moe_backend}" if options.moe_backend else "")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=SHAPES, default="wide")
    parser.add_argument("--seconds", type=float, default=3.0, help="counted seconds of each cell")
    parser.add_argument("--moe-backend", help="vLLM's --moe-backend, if not its own choice")


def seconds_of(options: argparse.Namespace) -> float:
    return 90 + len(WIDE_CELLS if options.shape == "wide" else DUMMY_CELLS) * (options.seconds + 4)


def kinds() -> Sequence[StepKind]:
    more = (*(f"--shape {shape}" for shape in SHAPES[1:]), "--shape gpt-oss-120b --moe-backend marlin")
    return [StepKind("profile", "step times of one engine alone", seconds_of, run, servers_of, name_of, add_options, more)]
