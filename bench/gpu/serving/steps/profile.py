"""A cost profile from a served engine, alone on the GPU: the steps that it really ran, host, scheduler and sampling
included, at several batch sizes and mixes of prompts.

The widened model gets real prompts: batches of one domain use fewer experts than mixed ones. Models with dummy
weights get random tokens: copies of one prompt use the same experts, so the number of different prompts in a
batch sets the number of experts.

With --engines several engines get such loads at once, without gateway and policies: how they share the GPU."""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from lab import load, prompts, step_log
from lab.engines import FINE_SIZES, Engine, eldr
from lab.legs import Client
from lab.models import config_of
from lab.say import say
from lab.servers import Server
from lab.stats import quantiles

from . import engines
from .common import TEMPERATURE, Context, StepKind

SHAPES = ("wide", "qwen3-30b-a3b", "gpt-oss-120b", "gemma-4-26b-a4b")
MAX_STEPS = 4000
# Of each cell; a fit to three cells needs 20 in all.
DRY_STEPS = 10
# Batch size, and the domain of its prompts.
WIDE_CELLS = [(size, "mixed") for size in (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64)]
WIDE_CELLS += [(size, domain) for size in (8, 16, 32) for domain in ("code", "zh")]
# Batch size, and the number of different prompts in it.
DUMMY_CELLS = [(1, 1), (2, 2), (4, 1), (4, 4), (8, 1), (8, 8), (16, 2), (16, 16), (32, 4), (32, 32), (48, 48), (64, 8), (64, 64)]
# Batch size of the first engine and of the others, mixed prompts: the same for all, or one with less to read.
SHARED_CELLS = [(4, 4), (8, 8), (16, 16), (24, 24), (32, 32), (2, 24), (8, 32), (24, 4)]
# Prompts at once, and the tokens of each: a step takes as many as fit.
PREFILLS = ((1, 128), (1, 512), (1, 1000), (1, 2000), (2, 2000), (5, 2000))


def servers_of(context: Context) -> list[Engine]:
    shape = context.options.shape
    if context.options.engines > 1:
        return engines.served(context, context.options.engines)  # prefill is idle: a tpot step may follow
    if shape == "wide":
        return [engines.alone(context)]
    flags: tuple[str, ...] = ("--moe-backend", context.options.moe_backend) if context.options.moe_backend else ()
    return [
        Engine(
            "alone",
            model=shape,
            transfer=eldr("kv_both", metrics=True, capture=False),
            graph_sizes=FINE_SIZES,
            prefix_caching=False,
            cache="16G",
            max_step_tokens=8192,
            share=0.7,
            inside={"steps": context.steps_file("alone")},
            flags=flags,
        )
    ]


def run(context: Context) -> None:
    options = context.options
    kind = "shared" if options.engines > 1 else "wide" if options.shape == "wide" else "dummy"
    cells, seconds = cells_of(context, kind)
    settings = {"shape": options.shape, "seconds": seconds, "cells": [list(cell) for cell in cells], "temperature": TEMPERATURE}
    if options.moe_backend:
        settings["moeBackend"] = options.moe_backend
    result = context.result(name_of(options), "profile", "profile", settings)
    if result.already_done():
        return
    chosen = servers_of(context)
    servers = context.lab.ready(chosen)
    measured = [servers[name] for name in sorted(servers) if name != "p"]
    context.describe(result, chosen[-1], measured[0])
    body = result.body
    body["log"] = [line.split("eldr: ")[-1] for line in measured[0].lines("eldr:")][:6]
    body["kv"] = {"bytesPerToken": kv_bytes(context, options.shape), **capacity(measured[0])}
    if options.engines > 1:
        body["engines"] = options.engines
    measure: Any = {"shared": shared_cell, "wide": wide_cell, "dummy": dummy_cell}[kind]
    names = {"shared": ("concurrency", "concurrencyOfOthers"), "wide": ("concurrency", "domain"), "dummy": ("concurrency", "prompts")}[kind]
    for index, cell in enumerate(cells):
        row = result.item(
            "cells",
            dict(zip(names, cell, strict=True)),
            partial(measure, context, measured, cell, seconds, index),
            needs_s=seconds + 20,
        )
        say(dict(zip(names, cell, strict=True)), {key: row[key] for key in ("stepMs", "experts", "steps")})
    if kind != "shared":
        result.part("prefill", lambda: prefill(context, measured[0], options.shape), needs_s=20)
    join(body)
    result.finish()


def cells_of(context: Context, kind: str) -> tuple[list[tuple[int, Any]], float]:
    if not context.is_dry:
        real: dict[str, list[tuple[int, Any]]] = {"shared": [*SHARED_CELLS], "wide": [*WIDE_CELLS], "dummy": [*DUMMY_CELLS]}
        return real[kind], context.options.seconds
    dry: dict[str, list[tuple[int, Any]]] = {
        "shared": [(1, 2)],
        "wide": [(1, "mixed"), (2, "mixed"), (2, "code")],
        "dummy": [(1, 1), (2, 2)],
    }
    return dry[kind], 1.0


def wide_cell(context: Context, servers: list[Server], cell: tuple[int, str], seconds: float, index: int) -> dict[str, Any]:
    size, domain = cell
    (server,) = servers
    began = 0.0
    for _ in range(10):
        sent = closed_loop(context, server, size, domain, seconds, index)
        time.sleep(1.2)
        first = sent["startedAt"] / 1000 + 1
        began = began or first
        found = recorded(context, servers, size, began, first + seconds)
        # A busy CPU may take few steps in a dry run, and the prediction that follows needs some.
        if not context.is_dry or found["steps"] >= DRY_STEPS:
            break
    return {"tpotMs": sent["tpotMs"], "itlMs": sent["itlMs"], **found}


def shared_cell(context: Context, servers: list[Server], cell: tuple[int, int], seconds: float, index: int) -> dict[str, Any]:
    """The engines start within milliseconds; only the time in which all are loaded counts."""
    own, others = cell
    sizes = [own, *[others] * (len(servers) - 1)]
    with ThreadPoolExecutor(len(servers)) as pool:
        jobs = [
            pool.submit(closed_loop, context, server, size, "mixed", seconds, index) for server, size in zip(servers, sizes, strict=True)
        ]
        sent = [job.result() for job in jobs]
    time.sleep(1.2)
    first = max(one["startedAt"] for one in sent) / 1000 + 1
    last = min(one["startedAt"] for one in sent) / 1000 + 1 + seconds
    return {"tpotMs": [one["tpotMs"] for one in sent], **recorded(context, servers, own, first, last)}


def closed_loop(context: Context, server: Server, size: int, domain: str, seconds: float, index: int) -> dict[str, Any]:
    stage = context.lab.stage
    rows = prompts.rows_of(stage, "held-out") + prompts.rows_of(stage, "calibration")
    rows = [row for row in rows if domain in ("mixed", row["domain"])]
    made = prompts.load_rows(rows, 1500, index, (4, 8) if context.is_dry else (112, 208))
    file = prompts.write_load(stage.run / f"cell-{server.name}.jsonl", made)
    body = {"temperature": TEMPERATURE}
    return load.send_load(
        context.lab, server, f"cell-{server.name}", file, seconds + 90, concurrency=size, duration=seconds, warmupSeconds=1, extraBody=body
    )


def dummy_cell(context: Context, servers: list[Server], cell: tuple[int, int], seconds: float, index: int) -> dict[str, Any]:
    """A closed loop of requests without a tokenizer. Copies of a prompt start together and stay together."""
    size, different = cell
    (server,) = servers
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
    return recorded(context, servers, size, first, time.time())


def recorded(context: Context, servers: list[Server], size: int, begin: float, end: float) -> dict[str, Any]:
    """Steps of all engines. stepMs: those of the first engine with a full batch; while requests start and end,
    batches are smaller."""
    # Times of a dry run mean nothing: waiting for the CPU counts as busy.
    gap_ms = float("inf") if context.is_dry else step_log.BUSY_GAP_MS
    rows_of = [step_log.read_rows(context.lab.stage.run / f"{server.name}.steps") for server in servers]
    of_servers = [step_log.decode_steps(rows, begin, end, gap_ms) for rows in rows_of]
    first = of_servers[0]
    full = [step.ms for step in first if step.batch == size] if len(first) > 200 else [step.ms for step in first]
    all_steps = [(worker, step) for worker, steps in enumerate(of_servers) for step in steps]
    kept = [all_steps[index] for index in step_log.thinned(len(all_steps), 600)]
    return {
        "steps": len(all_steps),
        "experts": step_log.work(first).get("experts"),
        "stepMs": quantiles(full),
        "workers": [step_log.work(steps) for steps in of_servers],
        "raw": [raw_row(worker, step) for worker, step in kept],
    }


def raw_row(worker: int, step: step_log.Step) -> dict[str, Any]:
    out = {"ms": round(step.ms, 4), "batch": step.batch, "contextTokens": step.context, "worker": worker}
    if step.experts:
        out |= {"experts": round(step.mean_experts, 4), "readExperts": round(step.mean_read, 4)}
    return out


def prefill(context: Context, server: Server, shape: str) -> dict[str, Any]:
    """Steps of prompts alone, from planning one to its output. The first of each kind is not counted: kernels are
    chosen at new sizes."""
    rng = random.Random(5)
    vocabulary = config_of(context.lab.stage, shape, context.is_dry)["vocab_size"]

    def ask(length: int) -> None:
        Client(server).complete([rng.randrange(4, vocabulary) for _ in range(length)], 1)

    out: dict[str, list[float]] = {"ms": [], "tokens": []}
    for count, length in ((1, 32), (2, 64)) if context.is_dry else PREFILLS:
        began = 0.0
        with ThreadPoolExecutor(count) as pool:
            for turn in range(3 if context.is_dry else 8):
                began = time.time() if turn == 1 else began
                list(pool.map(ask, [length] * count))
        time.sleep(1.2)
        rows = [row for row in step_log.read_rows(context.lab.stage.run / "alone.steps") if row[1] >= began and row[4] == row[3] > row[2]]
        out["ms"] += [round(1000 * (row[0] - row[1]), 4) for row in rows]
        out["tokens"] += [row[3] for row in rows]
    return out


def join(body: dict[str, Any]) -> None:
    """All cells' steps as columns."""
    recorded_steps = sum(cell["steps"] for cell in body["cells"])
    raw = [{**row, "cell": index} for index, cell in enumerate(body["cells"]) for row in cell["raw"]]
    if any("experts" in row for row in raw):  # a few steps at the end of a cell are not counted
        raw = [row for row in raw if "experts" in row]
    kept = [raw[index] for index in step_log.thinned(len(raw), MAX_STEPS)]
    columns = {name: [row[name] for row in kept] for name in (kept[0] if kept else ("ms", "batch"))}
    body["steps"] = columns
    body["kept"] = {"recorded": recorded_steps, "kept": len(kept), "how": "evenly spaced, at most 600 of each cell"}
    for cell in body["cells"]:
        cell.pop("raw", None)


def kv_bytes(context: Context, shape: str) -> int:
    config = config_of(context.lab.stage, shape, context.is_dry)
    heads = config["num_key_value_heads"]
    return int(config["num_hidden_layers"] * 2 * heads * config["head_dim"] * (4 if context.is_dry else 2))


def capacity(server: Server) -> dict[str, int]:
    """From the log: `GPU KV cache size: 349,520 tokens`."""
    for line in server.lines("KV cache size"):
        words = line.split("KV cache size:")[-1].split()
        if words and words[0].replace(",", "").isdigit():
            return {"capacityTokens": int(words[0].replace(",", ""))}
    return {}


def name_of(options: argparse.Namespace) -> str:
    more = [options.moe_backend] if options.moe_backend else [f"k{options.engines}"] if options.engines > 1 else []
    return "-".join(["profile", options.shape, *more])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=SHAPES, default="wide")
    parser.add_argument("--seconds", type=float, default=3.0, help="counted seconds of each cell")
    parser.add_argument("--engines", type=int, choices=(1, 2, 4), default=1, help="widened engines that are loaded at once")
    parser.add_argument("--moe-backend", help="vLLM's --moe-backend, if not its own choice")


def seconds_of(options: argparse.Namespace) -> float:
    cells = SHARED_CELLS if options.engines > 1 else WIDE_CELLS if options.shape == "wide" else DUMMY_CELLS
    start = 20 if cells is WIDE_CELLS else 100  # `prepare` leaves the widened engine running
    return start + len(cells) * (float(options.seconds) + 2.5)


def kinds() -> Sequence[StepKind]:
    more = ("--engines 4", "--engines 2", *(f"--shape {shape}" for shape in SHAPES[1:]), "--shape gpt-oss-120b --moe-backend marlin")
    return [StepKind("profile", "step times of one engine alone", seconds_of, run, servers_of, name_of, add_options, more)]
