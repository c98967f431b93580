"""What capture adds to the prefill leg: the same prompts, one at a time, to a server whose capture is switched on and
off in turn, and to a server with the plugin and to one without; then 16 at once."""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lab import prompts
from lab.engines import Engine
from lab.legs import Client, prefill_leg
from lab.models import NAMES, model_folder
from lab.say import say
from lab.servers import Server
from lab.stats import paired, quantiles

from . import engines
from .common import Context, StepKind
from .host_times import host_times

WARM_UP = 8


def servers_of(context: Context) -> list[Engine]:
    return engines.cost_servers(context, context.options.model)


def run(context: Context) -> None:
    options = context.options
    pairs, lengths = (4, (64, 256)) if context.is_dry else (options.pairs, (128, 512, 2048))
    settings = {"model": options.model, "pairs": pairs, "promptTokens": list(lengths), "seed": 1}
    result = context.result(name_of(options), "capture-cost", "captureCost", settings)
    if result.already_done():
        return
    chosen = servers_of(context)
    servers = context.lab.ready(chosen)
    context.describe(result, chosen[0], servers["with"])
    result.body["log"] = [line.split("eldr: ")[-1] for line in servers["with"].lines("eldr:")][:8]
    pool = prompts.token_pool(context.lab.stage, model_folder(context.lab.stage, "tiny6"))
    for length in lengths:
        timed = result.item(
            "timers",
            {"promptTokens": length},
            partial(host_times, context, Client(servers["with"]), Client(servers["reader"]), pool, length, max(4, pairs // 2)),
            needs_s=30,
        )
        say(f"{length} tokens, host µs per request:", {name: row["usPerRequest"] for name, row in timed["functions"].items()})
        for switched in (True, False):
            cell = result.item(
                "cells",
                {"promptTokens": length, "concurrency": 1, "switched": switched},
                partial(measure_pairs, sides_of(context, servers, switched), Client(servers["reader"]), pool, length, pairs),
                needs_s=60,
            )
            words = "one server" if switched else "two servers"
            added = {name: cell[name] for name in ("addedMs", "engineAddedMs")}
            say(f"{length} tokens, {words}: {cell['withoutMsQuantiles']['p50']:.2f} ms without, added {added}")
    if options.model == "wide":
        count = 8 if context.is_dry else 160
        for turn in range(1 if context.is_dry else 2):
            result.item(
                "throughput",
                {"promptTokens": lengths[1], "concurrency": 16, "round": turn},
                partial(measure_throughput, servers, pool, lengths[1], count, turn),
                needs_s=40,
            )
    result.finish()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair. turn: called before each of its requests. spans: file of the times in the engine."""

    client: Client
    turn: Callable[[], None]
    spans: Path


def sides_of(context: Context, servers: dict[str, Server], switched: bool) -> dict[str, Side]:
    on, off = (partial(set_capture, engines.switch_file(context), value) for value in (True, False))
    other = "with" if switched else "without"
    return {
        "with": Side(Client(servers["with"]), on, Path(engines.spans_file(context, "with"))),
        "without": Side(Client(servers[other]), off if switched else on, Path(engines.spans_file(context, other))),
    }


def set_capture(file: str, on: bool) -> None:
    with open(file, "r+b") as opened:  # in place: the engine has it mapped
        opened.write(bytes([on]))


def measure_pairs(sides: dict[str, Side], reader: Client, pool: list[int], length: int, pairs: int) -> dict[str, Any]:
    """Both sides of a pair get the same prompt (prefix caching is off); which comes first alternates."""
    rng = random.Random(length)
    legs: dict[str, list[float]] = {"with": [], "without": []}
    decode: dict[str, list[float]] = {"with": [], "without": []}
    asked: dict[Path, list[str]] = {side.spans: [] for side in sides.values()}
    before = {file: len(read_spans(file)) for file in asked}
    sent: dict[str, Any] = {}
    for index in range(pairs + WARM_UP):
        prompt = prompts.random_prompt(pool, length, rng)
        for name in sorted(sides, reverse=index % 2 == 0):
            sides[name].turn()
            first_ms, second_ms, handed = prefill_leg(sides[name].client, reader, prompt)
            asked[sides[name].spans].append(name)
            if index >= WARM_UP:
                legs[name].append(round(first_ms, 4))
                decode[name].append(second_ms)
            if (name == "with") != bool(handed and "counts" in handed):
                raise RuntimeError(f"a hand-off {name} capture: {handed}")
            sent = handed or sent
    sides["with"].turn()
    engine = engine_times(asked, before)
    return {
        "pairs": pairs,
        "withMs": legs["with"],
        "withoutMs": legs["without"],
        "addedMs": paired(legs["with"], legs["without"]),
        "engineWithMs": engine["with"][WARM_UP:],
        "engineWithoutMs": engine["without"][WARM_UP:],
        "engineAddedMs": paired(engine["with"][WARM_UP:], engine["without"][WARM_UP:]),
        "withoutMsQuantiles": quantiles(legs["without"]),
        "decodeLegMs": {name: quantiles(values) for name, values in decode.items()},
        "sent": {key: value for key, value in sent.items() if key not in ("counts", "recent")},
    }


def read_spans(file: Path) -> list[float]:
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []


def engine_times(asked: dict[Path, list[str]], before: dict[Path, int]) -> dict[str, list[float]]:
    """Of each side. asked: whose requests a server got, in order."""
    out: dict[str, list[float]] = {"with": [], "without": []}
    for file, names in asked.items():
        end = time.monotonic() + 10
        while len(spans := read_spans(file)[before[file] :]) < len(names):  # written every 0.2 s
            if time.monotonic() > end:
                raise RuntimeError(f"{file.name}: {len(spans)} times for {len(names)} requests")
            time.sleep(0.1)
        for name, ms in zip(names, spans, strict=True):
            out[name].append(ms)
    return out


def measure_throughput(servers: dict[str, Server], pool: list[int], length: int, count: int, turn: int) -> dict[str, Any]:
    return {
        f"{name}PerSecond": throughput(servers[name], servers["reader"], pool, length, count, random.Random(turn))
        for name in ("with", "without")
    }


def throughput(server: Server, reader: Server, pool: list[int], length: int, count: int, rng: random.Random) -> float:
    asked = [prompts.random_prompt(pool, length, rng) for _ in range(count)]
    local = threading.local()

    def one(prompt: list[int]) -> None:
        if not hasattr(local, "clients"):
            local.clients = (Client(server), Client(reader))
        prefill, decode = local.clients
        prefill_leg(prefill, decode, prompt)

    with ThreadPoolExecutor(16) as workers:
        list(workers.map(one, asked[:16]))
        began = time.perf_counter()
        list(workers.map(one, asked))
        return round(count / (time.perf_counter() - began), 2)


def name_of(options: argparse.Namespace) -> str:
    return "capture-cost" if options.model == "wide" else f"capture-cost-{options.model}"


def add_options(parser: argparse.ArgumentParser) -> None:
    shapes = [name for name in NAMES if name != "tiny6"]
    parser.add_argument("--model", choices=shapes, default="wide", help="wide, or a shape: qwen3-30b-a3b has 48 layers, 128 experts")
    parser.add_argument("--pairs", type=int, default=120)


def kinds() -> Sequence[StepKind]:
    return [
        StepKind(
            "capture-cost",
            "prefill leg with and without the plugin, in pairs",
            lambda o: 162 if o.model == "wide" else 410,
            run,
            servers_of,
            name_of,
            add_options,
            ("--model qwen3-30b-a3b",),
        ),
    ]
