"""KV transfers over NIXL under different settings: a delay of its progress thread, the plugin beside it, blocks
across layers. Times are NIXL's own (vLLM's metrics) and those of the decode leg."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lab import prompts
from lab.engines import NARROW, Engine, both, eldr, multi, nixl
from lab.legs import Client, prefill_leg
from lab.models import model_folder
from lab.say import say
from lab.servers import Server, total
from lab.stats import quantiles

from . import engines
from .common import Context, StepKind

ACROSS = {"enable_cross_layers_blocks": "True"}


def variants(context: Context) -> dict[str, tuple[str, Engine, Engine]]:
    """Name, description, prefill and decode server."""
    delay = {"ELDR_NIXL_DELAY_US": "1000"}
    small = engines.prefill("", engines.plain())
    small = replace(small, overrides=NARROW | engines.LONG)
    reader = engines.reader()

    def pair(
        name: str, what: str, producer: dict[str, Any], consumer: dict[str, Any], env: dict[str, str] | None = None
    ) -> tuple[str, tuple[str, Engine, Engine]]:
        return name, (
            what,
            replace(small, name=f"{name}-p", transfer=producer, env=env or {}),
            replace(reader, name=f"{name}-d", transfer=consumer, env=env or {}),
        )

    def joined(role: str, **settings: Any) -> dict[str, Any]:
        return multi(role, nixl(role, **settings), eldr(role))

    return dict(
        [
            pair("plain", "NIXL alone", nixl("kv_producer"), nixl("kv_consumer")),
            pair("both", "MultiConnector with the plugin", both("kv_producer"), both("kv_consumer")),
            pair("across", "NIXL alone, blocks across layers", nixl("kv_producer", **ACROSS), nixl("kv_consumer", **ACROSS)),
            pair(
                "both-across",
                "MultiConnector with the plugin, blocks across layers",
                joined("kv_producer", **ACROSS),
                joined("kv_consumer", **ACROSS),
            ),
            pair("delay", "NIXL alone, ELDR_NIXL_DELAY_US=1000", nixl("kv_producer"), nixl("kv_consumer"), delay),
        ]
    )


def chosen_variants(context: Context) -> dict[str, tuple[str, Engine, Engine]]:
    if not context.is_dry:
        return variants(context)
    # The servers of capture-cost, so that none starts.
    with_, _, reader = engines.cost_servers(context, "wide")
    return {"both": ("MultiConnector with the plugin", with_, reader)}


def servers_of(context: Context) -> list[Engine]:
    return [engine for _, producer, consumer in chosen_variants(context).values() for engine in (producer, consumer)]


def run(context: Context) -> None:
    rounds, lengths = (3, (64,)) if context.is_dry else (60, (128, 512, 2048))
    result = context.result("nixl", "features", "features", {"rounds": rounds, "promptTokens": list(lengths)})
    if result.already_done():
        return
    chosen = chosen_variants(context)
    servers = context.lab.ready(servers_of(context), must=False)
    context.describe(result, servers_of(context)[0])
    pool = prompts.token_pool(context.lab.stage, model_folder(context.lab.stage, "tiny6"))
    for length in lengths:
        for name, (what, producer, consumer) in chosen.items():
            row = result.item(
                "",
                {"feature": f"KV transfer: {what}, {length} tokens"},
                partial(measured, servers, producer.name, consumer.name, pool, length, rounds),
                needs_s=60,
            )
            say(name, length, row["verdict"], row.get("figures"))
    result.finish()


def measured(servers: dict[str, Server], producer: str, consumer: str, pool: list[int], length: int, rounds: int) -> dict[str, Any]:
    missing = [name for name in (producer, consumer) if name not in servers]
    if missing:
        return {"verdict": "failed", "note": f"{missing[0]} did not start."}
    rng = random.Random(length)
    first, second = Client(servers[producer]), Client(servers[consumer])
    for _ in range(4):
        prefill_leg(first, second, prompts.random_prompt(pool, length, rng))
    before = servers[consumer].metrics()
    legs = [prefill_leg(first, second, prompts.random_prompt(pool, length, rng)) for _ in range(rounds)]
    after = servers[consumer].metrics()
    figures: dict[str, Any] = {"prefillLegMs": quantiles([leg[0] for leg in legs]), "decodeLegMs": quantiles([leg[1] for leg in legs])}
    for key, metric in (("transferMs", "vllm:nixl_xfer_time_seconds"), ("postMs", "vllm:nixl_post_time_seconds")):
        count = total(after, f"{metric}_count") - total(before, f"{metric}_count")
        if count > 0:
            figures[key] = round(1000 * (total(after, f"{metric}_sum") - total(before, f"{metric}_sum")) / count, 4)
    mean = figures.get("transferMs")
    note = (
        f"A transfer of {length} tokens takes {mean:.2f} ms on average."
        if mean
        else f"{rounds} transfers of {length} tokens; NIXL reported no times."
    )
    return {"verdict": "run", "figures": figures, "note": note}


def name_of(options: argparse.Namespace) -> str:
    return "nixl"


def kinds() -> Sequence[StepKind]:
    return [StepKind("nixl", "KV transfers under different settings of NIXL", lambda o: 200, run, servers_of, name_of)]
