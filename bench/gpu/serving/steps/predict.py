"""The simulator's prediction of a served experiment, made before the policies run: a profile is fitted to the steps
of one engine alone, then the same requests at the same times are simulated with decoders that share the GPU. The
result of the experiment names the file and its hash. Needs no servers and no GPU.

With --again it is simulated after the runs, with the profile as the program fits it now. That
is no prediction, so the file has another name. The results of the policies are not read."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import prompts
from lab.engines import Engine
from lab.say import say
from lab.servers import ServerFailed
from staging.paths import CHECKOUT, COMMITTED

from . import prepare, tpot
from .common import Context, StepKind

# What `prepare` records in a dry run.
DRY_PROMPTS = 40


def servers_of(context: Context) -> list[Engine]:
    return []


def run(context: Context) -> None:
    settings, stage = tpot.settings_of(context), context.lab.stage
    paths = prepare.files(context)
    artifact = paths[f"k{settings['decoders']}"]
    if not artifact.exists():
        raise SystemExit("the clusters are not fitted: run the step `prepare` first")
    fit_profile(context)
    rows = prompts.rows_of(stage, "held-out")[: DRY_PROMPTS if context.is_dry else None]
    recorded = prompts.write_load(stage.run / "recorded.jsonl", rows)
    loads = [write_load(stage.run, rows, settings, turn) for turn in range(settings["rounds"])]
    name = f"{name_of(context.options)}.json"
    predicted = simulate(context, settings, artifact, recorded, loads)
    (stage.run / name).write_text(json.dumps(predicted, ensure_ascii=False, separators=(",", ":")) + "\n")
    context.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(stage.run / name, context.out / name)
    if not context.options.again:  # profiles/ has the present one
        shutil.copy(tpot.profile_path(context), context.out / tpot.profile_path(context).name)
    for line in summary(predicted):
        say(line)


def fit_profile(context: Context) -> None:
    """To the steps that this stage measured; a simulation afterwards may also use those of the repository."""
    own, committed = context.lab.stage.results / "profile-wide.json", COMMITTED / "profile-wide.json.br"
    found = next((file for file in (own, *([committed] if context.options.again else [])) if file.exists()), None)
    if found is None:
        raise SystemExit("no steps of an engine alone: run the step `profile` first")
    stage = context.lab.stage
    command = [stage.node, str(CHECKOUT / "scripts" / "served-profile.mjs"), str(found), "--dist", str(stage.project / "dist")]
    said = output_of([*command, "--out", str(tpot.profile_path(context)), *(["--dry"] if context.is_dry else [])], stage.run)
    say(said.strip())


def write_load(folder: Path, rows: list[prompts.Row], settings: dict[str, Any], turn: int) -> str:
    """The requests of a round, as the experiment sends them."""
    made = prompts.load_rows(rows, tpot.count_of(settings), settings["seed"] + turn, tuple(settings["outputTokens"]))
    return prompts.write_load(folder / f"load-{turn}.jsonl", made).name


def simulate(context: Context, settings: dict[str, Any], artifact: Path, recorded: Path, loads: list[str]) -> Any:
    """Paths are relative to the run folder: they are part of the prediction."""
    decoders = settings["decoders"]
    flags = {
        "trace": prepare.files(context)["evaluation"].name,
        "artifact": artifact.name,
        "profile": f"./{tpot.profile_path(context).name}",
        "topology": f"1P{decoders}D/{decoders}",
        "policies": ",".join(map(tpot.variant_of, settings["policies"])),
        "rates": str(settings["rate"]),
        "prompts": ",".join(loads),
        "recorded-prompts": recorded.name,
        "seed": str(settings["seed"]),
        "seeds": str(settings["rounds"]),
        "warmup-seconds": str(settings["warmupSeconds"]),
        "duration": str(settings["countedSeconds"]),
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return json.loads(output_of([*context.lab.stage.eldr, "simulate", *words, "--json", "--quiet"], context.lab.stage.run))


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, check=False)
    if done.returncode != 0:
        raise ServerFailed(f"{' '.join(command[1:3])} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def summary(predicted: dict[str, Any]) -> list[str]:
    """One line per policy: TPOT and its change against the reference, in percent, mean over the rounds."""
    runs = {point["variant"]: point["runs"] for point in predicted["points"]}
    out = []
    for policy, of_policy in runs.items():
        words = [f"simulated {policy:12}"]
        for name in ("p50", "p99"):
            values = [run["tpotMs"][name] for run in of_policy]
            pairs = zip(values, [run["tpotMs"][name] for run in runs[tpot.REFERENCE]], strict=True)
            changes = [100 * (value / base - 1) for value, base in pairs]
            words.append(f"TPOT {name} {sum(values) / len(values):.2f} ms ({sum(changes) / len(changes):+.1f} %)")
        out.append("; ".join(words))
    return out


def name_of(options: argparse.Namespace) -> str:
    return f"{'simulated' if options.again else 'predicted'}-{tpot.name_of(options)}"


def add_options(parser: argparse.ArgumentParser) -> None:
    tpot.add_options(parser)
    parser.add_argument("--again", action="store_true", help="after the runs, with the present fit")


def kinds() -> Sequence[StepKind]:
    text = "simulate what a tpot step will send, before it is run"
    return [StepKind("predict", text, lambda o: 6, run, servers_of, name_of, add_options)]
