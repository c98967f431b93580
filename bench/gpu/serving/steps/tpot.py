"""Served TPOT under the decode policies: the same open-loop load under each policy in turn, several rounds, every
other one in reverse order. Differences are taken within a round, against jsq."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import load, prompts, step_log
from lab.engines import Engine
from lab.models import facts
from lab.say import say
from lab.servers import Server, total
from lab.stats import linear_fit, relative_change
from staging.parts import sha256_of

from . import engines, prepare
from .common import TEMPERATURE, Context, StepKind

# Requests per second that keep about this many requests on each decoder, of four or of two (two are twice as fast).
RATES = {10: 13.5, 20: 22.0, 35: 34.0}
REFERENCE = "jsq"
POLICIES = ("random", "round_robin", "jsq", "power_of_two", "band", "eldr", "union")
# Costs of a step that `union` weighs: the gateway's default, from its own streams.
STEP_COST = "learnt"
# Without a seed: vLLM samples seeded requests one by one, which no server under load does.
BODY = {"temperature": TEMPERATURE}
# More metrics of the gateway: anything but decisions should be 0.
COUNTERS = (
    "eldr_signature_rejects_total",
    "eldr_decisions_total",
    "eldr_leg_failures_total",
    "eldr_retries_total",
    "eldr_ticket_leaks_total",
)


def servers_of(context: Context) -> list[Engine]:
    return engines.served(context, 2 if context.is_dry else context.options.decoders)


def run(context: Context) -> None:
    options = context.options
    settings = settings_of(context)
    result = context.result(name_of(options), "served", "served", settings)
    if result.already_done():
        return
    paths = prepare.files(context)
    artifact = paths[f"k{settings['decoders']}"]
    if not artifact.exists():
        raise SystemExit("the clusters are not fitted: run the step `prepare` first")
    chosen = servers_of(context)
    servers = context.lab.ready(chosen)
    context.describe(result, chosen[1], servers["d0"])
    body = result.body
    body.update(about(settings))
    body["trace"] = {
        **{key: paths[key].name for key in ("calibration", "evaluation")},
        "artifact": artifact.name,
        "sha256": {path.name: sha256_of(path) for path in (paths["calibration"], paths["evaluation"], artifact)},
    }
    predicted = context.lab.stage.run / f"predicted-{result.name}.json"
    if predicted.exists():
        body["prediction"] = {"file": predicted.name, "sha256": sha256_of(predicted)}
    warm_up(context, servers, settings)
    needs_s = settings["warmupSeconds"] + settings["countedSeconds"] + 25
    for turn in range(settings["rounds"]):
        policies = settings["policies"] if turn % 2 == 0 else settings["policies"][::-1]
        for policy in policies:
            one = result.item(
                "runs",
                {"policy": policy, "round": turn},
                partial(one_run, context, servers, settings, policy, turn),
                needs_s=needs_s,
            )
            say(line(one))
    body["summary"] = summary(body["runs"])
    for policy, figures in body["summary"]["againstJsq"].items():
        say(
            f"{policy} against {REFERENCE}:",
            {key: f"{value['mean']:+.2f} % [{value.get('low', 0):+.2f}, {value.get('high', 0):+.2f}]" for key, value in figures.items()},
        )
    result.finish()


def settings_of(context: Context) -> dict[str, Any]:
    options = context.options
    if context.is_dry:
        settings: dict[str, Any] = {
            "decoders": 2,
            "rate": 4.0,
            "rounds": 1,
            "warmupSeconds": 1,
            "countedSeconds": 3,
            "outputTokens": [4, 8],
        }
        return settings | {"targetBatch": 2, "policies": ["jsq", "union"], "seed": 11, "stepCost": STEP_COST}
    return {
        "decoders": options.decoders,
        "targetBatch": options.batch,
        "rate": options.rate or RATES[options.batch],
        "rounds": options.rounds,
        "policies": options.policies.split(","),
        "warmupSeconds": 6,
        "countedSeconds": options.seconds,
        "outputTokens": [192, 256],
        "seed": options.seed,
        "stepCost": STEP_COST,
    }


_ABOUT = ("decoders", "rate", "targetBatch", "outputTokens", "warmupSeconds", "countedSeconds", "stepCost")


def about(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: settings[key] for key in _ABOUT},
        "prefills": 1,
        "prefillModel": "tiny6 (not widened)",
        "temperature": TEMPERATURE,
        "prompts": "data/prompts/held-out.jsonl",
        "order": "interleaved, reversed every other round",
    }


def warm_up(context: Context, servers: dict[str, Server], settings: dict[str, Any]) -> None:
    """Kernels compile at their first use, NIXL connects at the first transfer: once per server."""
    decode = decoders_of(servers)
    mark = context.lab.stage.run / f"warm-{hashlib.sha256(str([server.pid for server in servers.values()]).encode()).hexdigest()[:12]}"
    if mark.exists():
        return
    rows = prompts.load_rows(prompts.rows_of(context.lab.stage, "held-out"), 600, 98, (24, 64))
    file = prompts.write_load(context.lab.stage.run / "warm.jsonl", rows)
    for concurrency in (2,) if context.is_dry else (len(decode) * 8, len(decode) * settings["targetBatch"] * 2):
        with context.lab.gateway("gateway", [servers["p"]], decode, "--policy", "round_robin") as gateway:
            load.send_load(
                context.lab, gateway, "warm", file, 120, concurrency=concurrency, duration=2 if context.is_dry else 5, extraBody=BODY
            )
    mark.touch()
    say("warm")


def profile_path(context: Context) -> Path:
    """Profile of this engine, fitted by the step `predict`."""
    return context.lab.stage.run / "served-profile.json"


def gateway_flags(policy: str, artifact: Path) -> list[str]:
    """The policy as it ships. No profile is named: `union` starts from the built-in costs of a step and learns."""
    return ["--policy", policy, "--artifact", str(artifact), "--step-cost", STEP_COST]


def variant_of(policy: str) -> str:
    """What the simulator calls the policy with the same costs of a step: only `union` weighs them."""
    return f"{policy}@{STEP_COST}" if policy == "union" else policy


def count_of(settings: dict[str, Any]) -> int:
    """Requests of a load file: more than are sent."""
    return int(settings["rate"] * (settings["warmupSeconds"] + settings["countedSeconds"]) * 1.5) + 60


def one_run(context: Context, servers: dict[str, Server], settings: dict[str, Any], policy: str, turn: int) -> dict[str, Any]:
    stage, seed = context.lab.stage, settings["seed"] + turn
    decode = decoders_of(servers)
    rows = prompts.load_rows(prompts.rows_of(stage, "held-out"), count_of(settings), seed, tuple(settings["outputTokens"]))
    file = prompts.write_load(stage.run / f"load-{turn}.jsonl", rows)
    artifact = prepare.files(context)[f"k{settings['decoders']}"]
    layers = facts(stage, "wide", context.is_dry)["layers"]
    with context.lab.gateway("gateway", [servers["p"]], decode, *gateway_flags(policy, artifact)) as gateway:
        before = load.work_of(decode)
        began = time.time()
        sent = load.send_load(
            context.lab,
            gateway,
            f"{policy}-{turn}",
            file,
            settings["countedSeconds"] + 120,
            rate=settings["rate"],
            duration=settings["countedSeconds"],
            warmupSeconds=settings["warmupSeconds"],
            seed=seed,
            extraBody=BODY,
        )
        time.sleep(1.3)  # the engines' step files and metrics
        after = load.work_of(decode)
        values = gateway.metrics()
    first = sent["startedAt"] / 1000 + settings["warmupSeconds"]
    steps = [
        step_log.decode_steps(step_log.read_rows(stage.run / f"{server.name}.steps"), first, first + settings["countedSeconds"])
        for server in decode
    ]
    per_request = sent["perRequest"]
    per_request["row"] = [rows[int(index) % len(rows)]["id"] for index in per_request.pop("index")]
    return {
        "seed": seed,
        "startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        **load.figures(sent),
        "workers": [step_log.work(one) for one in steps],
        "together": step_log.work([step for one in steps for step in one]),
        "wholeRun": load.work_between(before, after, layers),
        "byBatch": step_log.by_batch([step for one in steps for step in one]),
        "gateway": {name: total(values, name) for name in COUNTERS},
        "perRequest": per_request,
        "steps": kept_steps(steps, first),
    }


def kept_steps(steps: list[list[step_log.Step]], first: float, limit: int = 250) -> dict[str, list[float]]:
    """Some of the steps, for a regression of their time on their experts."""
    flat = sorted(((worker, step) for worker, one in enumerate(steps) for step in one if step.experts), key=lambda pair: pair[1].done)
    kept = [flat[index] for index in step_log.thinned(len(flat), limit)]
    return {
        "worker": [worker for worker, _ in kept],
        "startMs": [round(1000 * (step.done - first) - step.ms, 1) for _, step in kept],
        "ms": [round(step.ms, 3) for _, step in kept],
        "batch": [step.batch for _, step in kept],
        "experts": [round(step.mean_experts, 4) for _, step in kept],
    }


def decoders_of(servers: dict[str, Server]) -> list[Server]:
    return [servers[name] for name in sorted(servers) if name.startswith("d")]


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Changes against jsq in percent, with their intervals over the rounds; the line of mean TPOT over experts."""
    whole = [run for run in runs if "tpotMs" in run]
    rounds: dict[str, dict[int, dict[str, Any]]] = {}
    for run in whole:
        rounds.setdefault(run["policy"], {})[run["round"]] = run
    changes: dict[str, Any] = {}
    for policy, of_policy in rounds.items():
        common = sorted(set(of_policy) & set(rounds.get(REFERENCE, {})))
        if policy == REFERENCE or not common:
            continue
        pairs = [(of_policy[turn], rounds[REFERENCE][turn]) for turn in common]
        changes[policy] = {
            name: relative_change([read(one) for one, _ in pairs], [read(other) for _, other in pairs])
            for name, read in _FIGURES.items()
            if all(read(run) for pair in pairs for run in pair)
        }
    out: dict[str, Any] = {"unit": "percent", "againstJsq": changes}
    counted = [run for run in whole if run["together"].get("experts")]
    if len(counted) > 2:
        fit = linear_fit([[run["together"]["experts"] for run in counted]], [run["tpotMs"]["mean"] for run in counted])
        out["tpotOverExperts"] = {
            "baseMs": round(fit.coefficients[0], 4),
            "msPerExpert": round(fit.coefficients[1], 4),
            "r2": round(fit.r2, 4),
        }
    return out


_FIGURES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tpotP50": lambda run: run["tpotMs"]["p50"],
    "tpotP99": lambda run: run["tpotMs"]["p99"],
    "itlP50": lambda run: run["itlMs"]["p50"],
    "itlP99": lambda run: run["itlMs"]["p99"],
    "ttftP50": lambda run: run["ttftMs"]["p50"],
    "batch": lambda run: run["together"].get("batch"),
    "experts": lambda run: run["together"].get("experts"),
}


def line(run: dict[str, Any]) -> str:
    tpot, together = run["tpotMs"], run["together"]
    return (
        f"round {run['round']} {run['policy']:12} TPOT p50 {tpot['p50']:.2f} p99 {tpot['p99']:.2f}; ITL p99 {run['itlMs']['p99']:.1f}; "
        f"TTFT p50 {run['ttftMs']['p50']:.0f}; batch {together.get('batch')} experts {together.get('experts')}; "
        f"failed {run['requests']['failed']}; client kept up: {run['client']['keptUp']}"
    )


def name_of(options: argparse.Namespace) -> str:
    label = f"-{options.label}" if options.label else ""
    return f"served-k{options.decoders}-b{options.batch}{label}"


def seconds_of(options: argparse.Namespace) -> float:
    """As on an H200: the first step took 117 s to start and warm its servers, the next found them running."""
    runs: int = options.rounds * len(options.policies.split(","))
    return 60 + runs * float(options.seconds + 12)


def policies(text: str) -> str:
    names = text.split(",")
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; the policies are {', '.join(POLICIES)}")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text}: a policy is named twice")
    if REFERENCE not in names:
        raise argparse.ArgumentTypeError(f"{text}: {REFERENCE} is missing, which the others are compared with")
    return text


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--decoders", type=int, choices=prepare.DECODERS, default=4)
    parser.add_argument("--batch", type=int, choices=tuple(RATES), default=10, help="about how many requests per decoder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=17, help="counted seconds of each run")
    parser.add_argument("--policies", type=policies, default="round_robin,jsq,band,eldr,union", help=f"among {', '.join(POLICIES)}")
    parser.add_argument("--rate", type=float, help="requests per second; default: fitting --batch")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--label", help="end of the result's name, to keep several results of one load")


def kinds() -> Sequence[StepKind]:
    more = tuple(
        f"--decoders {count} --batch {batch}" for count in prepare.DECODERS for batch in RATES if (count, batch) not in ((4, 10), (4, 20))
    )
    return [StepKind("tpot", "TPOT under the policies, in rounds", seconds_of, run, servers_of, name_of, add_options, more)]
