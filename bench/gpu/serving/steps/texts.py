"""Prefill and decode on separate engines over NIXL, through the gateway: greedy texts equal those of one server, and
those under another policy.

Cold, an engine may differ from itself: the first pass fills caches and compiles kernels. So the one server is asked
twice as well."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from lab import prompts
from lab.engines import FINE_SIZES, Engine, nixl
from lab.models import model_folder
from lab.say import say
from lab.servers import Server, total

from . import engines
from .common import Context, StepKind

REJECTED = "eldr_signature_rejects_total"
FAILED = "eldr_leg_failures_total"
LEAKED = "eldr_ticket_leaks_total"


def servers_of(context: Context) -> list[Engine]:
    """The one server is a decoder as well: it gets plain requests here. The same kernels run in all of them."""
    decoders = 2
    served = engines.served(context, decoders)
    if context.is_dry:
        return served
    wide_prefill = replace(
        engines.prefill("p-wide", engines.with_plugin()), max_len=2048, max_step_tokens=2048, overrides={}, graph_sizes=FINE_SIZES
    )
    single = replace(wide_prefill, name="single", transfer=nixl("kv_both"))
    return [wide_prefill, *served[1:], single]


def run(context: Context) -> None:
    count, tokens = (4, 6) if context.is_dry else (40, 48)
    result = context.result("texts", "capture-exact", "captureExact", {"prompts": count, "tokens": tokens})
    if result.already_done():
        return
    chosen = servers_of(context)
    servers = context.lab.ready(chosen)
    context.start_next()
    context.describe(result, chosen[0], servers[chosen[0].name])
    folder = model_folder(context.lab.stage, "tiny6")
    asked = [prompts.tokens_of(folder, row["prompt"]) for row in prompts.rows_of(context.lab.stage, "held-out")[:count]]
    single, decode = servers.get("single", servers["d0"]), [servers[name] for name in sorted(servers) if name.startswith("d")]
    result.body.setdefault("cases", [])
    pd = result.part("pd", lambda: compared(context, servers[chosen[0].name], decode, single, asked, tokens), needs_s=90)
    say(pd)
    result.finish()


def compared(
    context: Context, prefill: Server, decode: list[Server], single: Server, asked: list[list[int]], tokens: int
) -> dict[str, Any]:
    cold = [text(single, prompt, tokens) for prompt in asked]
    warm = [text(single, prompt, tokens) for prompt in asked]
    out: dict[str, Any] = {"prompts": len(asked), "selfColdWarmEqual": equal(cold, warm)}
    by_policy: dict[str, dict[str, list[str]]] = {"policiesEqual": {}, "policiesAtOnceEqual": {}}
    rejected = failed = leaked = 0.0
    for policy in ("round_robin", "union"):
        with context.lab.gateway("gateway", [prefill], decode, "--policy", policy) as gateway:
            first = [text(gateway, prompt, tokens) for prompt in asked]
            out.setdefault("coldEqual", equal(first, warm))
            second = [text(gateway, prompt, tokens) for prompt in asked]
            with ThreadPoolExecutor(16) as pool:
                together = list(pool.map(lambda prompt, gateway=gateway: text(gateway, prompt, tokens), asked))
            out[f"{policy}Equal"] = equal(second, warm)
            out[f"{policy}AtOnceEqual"] = equal(together, warm)
            by_policy["policiesEqual"][policy] = second
            by_policy["policiesAtOnceEqual"][policy] = together
            values = gateway.metrics()
            rejected += total(values, REJECTED)
            failed += total(values, FAILED)
            leaked += total(values, LEAKED)
    with ThreadPoolExecutor(16) as pool:
        out["selfAtOnceEqual"] = equal(list(pool.map(lambda prompt: text(single, prompt, tokens), asked)), warm)
    out |= {name: the_same(texts) for name, texts in by_policy.items()}
    out["equalTexts"] = min(out["round_robinEqual"], out["unionEqual"])
    return out | {"signaturesRejected": rejected, "transfersFailed": failed, "ticketsLeft": leaked}


def text(server: Server, prompt: list[int], tokens: int) -> str:
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return str(server.post("/v1/completions", body)["choices"][0]["text"])


def equal(one: list[str], other: list[str]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def the_same(by_policy: Mapping[str, Sequence[str]]) -> int:
    """Prompts whose text is the same under every policy."""
    return sum(len(set(texts)) == 1 for texts in zip(*by_policy.values(), strict=True))


def name_of(options: argparse.Namespace) -> str:
    return "texts"


def kinds() -> Sequence[StepKind]:
    return [StepKind("texts", "texts over NIXL against those of one server", lambda o: 150, run, servers_of, name_of)]
