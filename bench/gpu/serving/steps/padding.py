"""What padding rows of CUDA graphs cost: batches of 16 and 17 with graphs of 16 and 32 rows, and with a graph of 17.

A graph has a fixed size; a batch of 17 runs as 32 rows, and vLLM sends the 15 rows of padding through the experts
too. The plugin reports both: distinct experts of the requests, and of all rows that are read."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lab import load, prompts, step_log
from lab.engines import Engine
from lab.say import say
from lab.servers import Server
from lab.stats import quantiles

from . import engines
from .common import TEMPERATURE, Context, StepKind

SIZES = {"coarse": (1, 2, 4, 8, 16, 32, 64), "exact": (1, 2, 4, 8, 15, 16, 17, 18, 24, 32, 64)}
BATCHES = (16, 17)


def servers_of(context: Context) -> list[Engine]:
    alone = engines.alone(context)
    if context.is_dry:
        return [alone]
    return [replace(alone, name=name, graph_sizes=sizes, inside={"steps": context.steps_file(name)}) for name, sizes in SIZES.items()]


def run(context: Context) -> None:
    seconds, batches = (1.0, (1, 2)) if context.is_dry else (5.0, BATCHES)
    result = context.result(
        "padding",
        "features",
        "features",
        {"seconds": seconds, "batches": list(batches), "graphSizes": {k: list(v) for k, v in SIZES.items()}},
    )
    if result.already_done():
        return
    chosen = servers_of(context)
    servers = context.lab.ready(chosen)
    context.describe(result, chosen[0], servers[chosen[0].name])
    for engine in chosen:  # one engine is loaded at a time; the other is idle
        for batch in batches:
            sizes = engine.graph_sizes or ()
            row = result.item(
                "",
                {"feature": f"graph padding: batch {batch}, graphs of {', '.join(map(str, sizes)) if sizes else 'any size'}"},
                partial(measured, context, servers[engine.name], batch, seconds),
                needs_s=seconds + 20,
            )
            say(row["feature"], row["figures"])
    result.finish()


def measured(context: Context, server: Server, batch: int, seconds: float) -> dict[str, Any]:
    stage = context.lab.stage
    rows = prompts.load_rows(prompts.rows_of(stage, "held-out"), 800, 7, (4, 8) if context.is_dry else (160, 240))
    file = prompts.write_load(stage.run / "padding.jsonl", rows)
    sent = load.send_load(
        context.lab,
        server,
        "padding",
        file,
        120,
        concurrency=batch,
        duration=seconds,
        warmupSeconds=1,
        extraBody={"temperature": TEMPERATURE},
    )
    time.sleep(1.2)
    first = sent["startedAt"] / 1000 + 1
    steps = [
        step
        for step in step_log.decode_steps(step_log.read_rows(stage.run / f"{server.name}.steps"), first, first + seconds)
        if step.batch == batch and step.experts and step.read
    ]
    figures: dict[str, Any] = {
        "steps": len(steps),
        "experts": round(sum(step.mean_experts for step in steps) / max(1, len(steps)), 3),
        "readExperts": round(sum(step.mean_read for step in steps) / max(1, len(steps)), 3),
        "stepMs": quantiles([step.ms for step in steps]),
    }
    more = figures["readExperts"] - figures["experts"]
    return {"verdict": "run" if steps else "failed", "figures": figures, "note": f"Padding adds {more:.1f} experts per layer to a step."}


def name_of(options: argparse.Namespace) -> str:
    return "padding"


def kinds() -> Sequence[StepKind]:
    return [StepKind("padding", "experts that padding rows of graphs read", lambda o: 150, run, servers_of, name_of)]
