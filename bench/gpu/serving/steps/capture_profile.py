"""Where the time of capture goes: the prefill leg of servers that differ in one thing each, host timers around
the plugin's functions, and torch's profiler for a few steps."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import prompts
from lab.engines import Engine, both
from lab.legs import Client, prefill_leg
from lab.models import model_folder
from lab.say import say
from lab.servers import Server
from lab.stats import paired, quantiles

from . import engines
from .common import Context, StepKind
from .host_times import host_times

# Each adds something to the one before it.
VARIANTS = {
    "nixl": "NIXL alone",
    "multi": "MultiConnector around NIXL",
    "idle": "the plugin beside it, capture off",
    "counts": "capture of counts",
    "recent": "recent counts too",
}


def servers_of(context: Context) -> list[Engine]:
    folder = context.lab.stage.run
    if context.is_dry:
        return engines.cost_servers(context, "wide")
    counts = both("kv_producer")
    return [
        engines.prefill("nixl", engines.plain()),
        engines.prefill("multi", engines.multi_alone()),
        engines.prefill("idle", engines.idle_plugin()),
        engines.prefill("counts", counts),
        engines.prefill("recent", engines.with_plugin()),
        engines.prefill("timed", engines.with_plugin(), inside={"timers": str(folder / "timers"), "profile": str(folder / "profile")}),
        engines.reader(),
    ]


def run(context: Context) -> None:
    rounds, lengths = (3, (64,)) if context.is_dry else (context.options.rounds, (128, 512, 2048))
    settings = {"rounds": rounds, "promptTokens": list(lengths), "seed": 2}
    result = context.result("capture-profile", "capture-profile", "captureProfile", settings)
    if result.already_done():
        return
    chosen = servers_of(context)
    servers = context.lab.ready(chosen)
    if context.is_dry:
        servers = {"nixl": servers["without"], "recent": servers["with"], "timed": servers["with"], "reader": servers["reader"]}
    context.describe(result, chosen[0], servers["nixl"])
    pool = prompts.token_pool(context.lab.stage, model_folder(context.lab.stage, "tiny6"))
    variants = [name for name in VARIANTS if name in servers]
    for length in lengths:
        cell = result.item(
            "variants",
            {"promptTokens": length},
            partial(compare, servers, variants, pool, length, rounds),
            needs_s=60,
        )
        say(f"{length} tokens:", {name: figures["p50"] for name, figures in cell["legMs"].items()})
        timed = result.item(
            "timers",
            {"promptTokens": length},
            partial(host_times, context, Client(servers["timed"]), Client(servers["reader"]), pool, length, max(4, rounds // 2)),
            needs_s=30,
        )
        say(f"{length} tokens, host µs per request:", {name: row["usPerRequest"] for name, row in timed["functions"].items()})
    if not context.is_dry:
        for length in lengths[1:]:
            result.item("operations", {"promptTokens": length}, partial(operations, context, servers, pool, length), needs_s=30)
    result.finish()


def compare(servers: dict[str, Server], variants: list[str], pool: list[int], length: int, rounds: int) -> dict[str, Any]:
    rng = random.Random(length)
    reader = Client(servers["reader"])
    clients = {name: Client(servers[name]) for name in variants}
    legs: dict[str, list[float]] = {name: [] for name in variants}
    for index in range(rounds + 6):
        prompt = prompts.random_prompt(pool, length, rng)
        for name in rng.sample(variants, len(variants)):
            ms, _, _ = prefill_leg(clients[name], reader, prompt)
            if index >= 6:
                legs[name].append(round(ms, 4))
    return {
        "legMs": {name: quantiles(values) for name, values in legs.items()},
        "addedMs": {f"{name} − {before}": paired(legs[name], legs[before]) for before, name in itertools.pairwise(variants)},
        "rawMs": legs,
        "what": {name: VARIANTS[name] for name in variants},
    }


def operations(context: Context, servers: dict[str, Server], pool: list[int], length: int) -> dict[str, Any]:
    folder = Path(context.lab.stage.run) / "profile"
    (folder / "operations.json").unlink(missing_ok=True)
    (folder / "go").touch()
    rng = random.Random(length + 2)
    client, reader = Client(servers["timed"]), Client(servers["reader"])
    for _ in range(40):
        prefill_leg(client, reader, prompts.random_prompt(pool, length, rng))
        if (folder / "operations.json").exists():
            return {"profile": json.loads((folder / "operations.json").read_text())}
        time.sleep(0.25)
    return {"profile": None}


def name_of(options: argparse.Namespace) -> str:
    return "capture-profile"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=80)


def kinds() -> Sequence[StepKind]:
    return [StepKind("capture-profile", "where the time of capture goes", lambda o: 190, run, servers_of, name_of, add_options)]
