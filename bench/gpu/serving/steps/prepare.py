"""Calibration on a served engine and the artifacts that the policies need: traces of the prompts for fitting and
of the held-out ones, and a fit for each number of decoders."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab.engines import Engine
from lab.say import say
from staging.parts import sha256_of

from . import engines
from .common import TEMPERATURE, Context, StepKind

DECODERS = (4, 2)


def files(context: Context) -> dict[str, Path]:
    run = context.lab.stage.run
    return {
        "calibration": run / "wide.calibration.safetensors",
        "evaluation": run / "wide.evaluation.safetensors",
        **{f"k{count}": run / f"wide.k{count}.artifact.safetensors" for count in DECODERS},
    }


def servers_of(context: Context) -> list[Engine]:
    return [engines.alone(context)]


def run(context: Context) -> None:
    lab, paths = context.lab, files(context)
    # The evaluation is replayed by the step `predict`: as many steps as a response has tokens.
    steps = {"calibration": 8, "evaluation": 8} if context.is_dry else {"calibration": 128, "evaluation": 256}
    limit = ["--limit", "40"] if context.is_dry else []
    settings = {"steps": steps, "temperature": TEMPERATURE, "decoders": list(DECODERS)}
    result = context.result("prepare", "prepare", "prepare", settings)
    if all(path.exists() for path in paths.values()) and result.already_done():
        return
    result.value.pop("prepare", None)  # its files are gone
    chosen = servers_of(context)
    server = lab.ready(chosen)["alone"]
    context.describe(result, chosen[0], server)
    for split, source in (("calibration", "calibration"), ("evaluation", "held-out")):
        arguments = ["--url", server.url, "--prompts", str(lab.stage.prompts / f"{source}.jsonl"), "--out", str(paths[split])]
        arguments += ["--split", split, "--steps", str(steps[split]), "--concurrency", "8" if context.is_dry else "48"]
        arguments += ["--temperature", str(TEMPERATURE), "--force", *limit]
        result.part(split, partial(timed, context, "calibrate", arguments), needs_s=60)
        say(split, result.body[split])
    for count in DECODERS:
        arguments = [str(paths["calibration"]), "--workers", str(count), "--out", str(paths[f"k{count}"])]
        result.part(f"k{count}", partial(timed, context, "fit", arguments), needs_s=30)
    result.body["sha256"] = {path.name: sha256_of(path) for path in paths.values()}
    for path in paths.values():
        context.out.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, context.out / path.name)
    result.finish()


def timed(context: Context, command: str, arguments: list[str]) -> dict[str, Any]:
    began = time.monotonic()
    said = context.lab.eldr(command, *arguments, timeout_s=240)
    kept = {key: said[key] for key in ("prompts", "captured", "skipped", "shorter", "rho", "signature", "workers") if key in said}
    if "transforms" in said:
        kept["transforms"] = {one["name"]: round(one["rho"], 4) for one in said["transforms"]}
    return {"seconds": round(time.monotonic() - began, 2), **kept}


def name_of(options: argparse.Namespace) -> str:
    return "prepare"


def kinds() -> Sequence[StepKind]:
    return [StepKind("prepare", "calibrate on a served engine and fit the clusters", lambda o: 75, run, servers_of, name_of)]
