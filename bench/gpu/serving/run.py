"""vLLM on one GPU, served and measured: stages the machine, runs the experiments, saves their results. README.md."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lab import mps
from lab.lab import Lab
from lab.results import OutOfTime
from lab.say import say
from lab.servers import ServerFailed
from staging import check, parts, wheelhouse
from staging.paths import COMMITTED, Stage, out_in, stage_in
from steps import kinds
from steps.common import STEP_SECONDS, Context, StepKind

CORE = ("capture", "prepare", "profile", "capture-cost", "predict", "tpot", "predict --batch 20", "tpot --batch 20")
# Every kind of step once; neighbours share servers. Left out: other sets and shapes, `--again`, `--moe-backend`, and what
# needs a GPU: MPS, CUDA graphs, torch.compile, the kernels, torch's profiler, the widened size.
DRY = (
    *("prepare", "profile", "padding", "capture", "capture-cost", "capture-profile", "nixl", "predict", "tpot"),
    *("profile --engines 2", "texts", "features", "profile --shape qwen3-30b-a3b"),
)

# Below 60 MB (57.2 MiB).
PART_MIB = 57
# A shard has at most 24 MiB before compression, and may not compress at all.
MIN_PART_MIB = 25

# These need NumPy; help and staging need only the standard library.
STEP_COMMANDS = {"step", "start", "core", "dry", "list"}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        given = parser(with_steps=bool(set(words) & STEP_COMMANDS)).parse_args(words)
    except ModuleNotFoundError as error:
        return again_with_packages(words, error)
    stage = stage_in(given.stage)
    try:
        if stage.root.exists() and not stage.root.is_dir():
            raise parts.BadPart(f"the stage {stage.root} is a file: name a folder with --stage")
        code = int(given.do(given, stage) or 0)
        sys.stdout.flush()
        return code
    except (parts.BadPart, ServerFailed) as error:
        say(f"failed: {error}")
        return 1
    except BrokenPipeError:  # the reader has enough, such as `| head`; Python would complain again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def again_with_packages(words: list[str], missing: ModuleNotFoundError) -> int:
    """The steps need NumPy, which only the stage's environment may have."""
    only_stage = argparse.ArgumentParser(add_help=False)
    only_stage.add_argument("--stage")
    python = stage_in(only_stage.parse_known_args(words)[0].stage).python
    if python == sys.executable:
        advice = "Run the command `install` first; without a network, use a Python that has the packages of README.md"
        if "dry" in words:
            advice = "A dry run needs vLLM's CPU build: `bash scripts/vllm-tools.sh` makes it; use ~/.cache/eldr/vllm/bin/python"
        say(f"failed: {missing}. {advice}")
        return 1
    return subprocess.run([python, __file__, *words], check=False).returncode


def parser(with_steps: bool = True) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="run.py", description=__doc__)
    top.add_argument("--stage", help="folder for packages, run files and resumable results (default: ELDR_STAGE, or in ~/.cache/eldr)")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, text: str, do: object) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(do=do)
        return sub

    made = command("wheelhouse", "with a network: make the parts for a machine without one", do_wheelhouse)
    made.add_argument("--out", required=True, help="folder for the parts")
    made.add_argument("--only", choices=("site", "project"), help="make only the Python packages, or only Node and the built project")
    made.add_argument("--part-mib", type=part_mib, default=PART_MIB, help=f"largest size of a part, at least {MIN_PART_MIB}")
    made.add_argument("--find-links", action="append", default=[], help="folder with wheels that need not be downloaded")
    made.add_argument("--preset", type=int, default=6, help="effort of xz, 0 to 9")
    command("unpack", "without a network: unpack parts into the stage", do_unpack).add_argument("parts", nargs="+", type=Path)
    command("install", "with a network: install the packages into the stage", do_install)
    for name, text, do in (
        ("check", "check the stage, the GPU and MPS", do_check),
        ("list", "list the steps, how long they take and which are done", do_list),
        ("stop", "stop all servers and MPS", do_stop),
    ):
        _with_device(command(name, text, do))
    for name, text, do in (
        ("step", "run one step; run it again to continue it", do_step),
        ("start", "start the servers of a step, so that they load meanwhile", do_start),
    ):
        sub = command(name, text, do)
        names = sub.add_subparsers(required=True, metavar="STEP")
        for kind in kinds() if with_steps else []:
            of_kind = names.add_parser(kind.name, help=kind.help, description=kind.help)
            of_kind.set_defaults(kind=kind)
            _with_device(of_kind)
            of_kind.add_argument(
                "--then", metavar="STEP", help="next step: its servers load while this one runs, or after it if it measures times"
            )
            kind.options(of_kind)
    _with_device(command("core", "run the core set: " + ", ".join(CORE), do_core))
    dry = command("dry", "every kind of step on vLLM's CPU build with tiny loads; its results are marked as such", do_dry)
    dry.add_argument("--out", required=True)
    dry.add_argument("--only", type=dry_steps, default=list(DRY), help="names of steps, separated by commas")
    return top


def part_mib(text: str) -> float:
    value = float(text)
    if value < MIN_PART_MIB:
        raise argparse.ArgumentTypeError(f"{text}: a part has at least {MIN_PART_MIB} MiB, so that a shard fits whatever its files are")
    return value


def dry_steps(text: str) -> list[str]:
    wanted, known = text.split(","), dict.fromkeys(words.split()[0] for words in DRY)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; the steps are {', '.join(known)}")
    return [words for words in DRY if words.split()[0] in wanted]


def _with_device(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run")
    sub.add_argument("--out", help="folder that results are copied to (default: $OUT, or none but the stage's)")
    sub.add_argument("--limit", type=float, default=STEP_SECONDS, help="seconds after which a step stops, to be continued")


def context_of(given: argparse.Namespace, stage: Stage) -> Context:
    return Context(Lab(stage, given.device), out_in(given.out, stage), given.limit, given)


def do_wheelhouse(given: argparse.Namespace, stage: Stage) -> None:
    groups = [given.only] if given.only else ["site", "project"]
    wheelhouse.make(Path(given.out).absolute(), groups, int(given.part_mib * 2**20), given.find_links, given.preset, say)


def do_unpack(given: argparse.Namespace, stage: Stage) -> None:
    for part in given.parts:
        entry = parts.check_part(part, parts.read_manifest(part.parent / parts.MANIFEST))
        shards = parts.unpack_part(part, stage.root / entry["group"])
        stage.unpacked.mkdir(parents=True, exist_ok=True)
        shutil.copy(part.parent / parts.MANIFEST, stage.root / parts.MANIFEST)
        (stage.unpacked / part.name).touch()
        say(f"{part.name}: {shards} shards unpacked")


def do_install(given: argparse.Namespace, stage: Stage) -> None:
    wheelhouse.install(stage.root, say)


def do_check(given: argparse.Namespace, stage: Stage) -> int:
    return 0 if check.check(stage, given.device, say) else 1


def do_list(given: argparse.Namespace, stage: Stage) -> None:
    names = parser()
    for words in _all_steps():
        of_step = names.parse_args(["step", *words.split()])
        kind: StepKind = of_step.kind
        name = kind.result_name(of_step)
        core = "core" if words in CORE else ""
        print(f"{words:44} {core:5} {kind.seconds(of_step):4.0f} s  {_status(stage, name):24} {kind.help}")
    print(f"core set: about {core_minutes():.0f} minutes on an H200")


def core_minutes() -> float:
    of_steps = [parser().parse_args(["step", *words.split()]) for words in CORE]
    return sum(float(of_step.kind.seconds(of_step)) for of_step in of_steps) / 60


def _all_steps() -> list[str]:
    return list(dict.fromkeys([*CORE, *(words for kind in kinds() for words in kind.variants)]))


def _status(stage: Stage, name: str) -> str:
    """On this stage. Results of the repository are named, but do not count as done."""
    path, committed = stage.results / f"{name}.json", any(COMMITTED.glob(f"{name}.json*"))
    if not path.exists():
        path = stage.run / path.name  # predictions
    try:
        return str(json.loads(path.read_text()).get("status", "done"))
    except FileNotFoundError:
        return "not run" + (" here; committed" if committed else "")
    except (OSError, ValueError, AttributeError):
        return "damaged file"


def do_step(given: argparse.Namespace, stage: Stage) -> int:
    kind: StepKind = given.kind

    def start_next(stop_others: bool = False) -> None:
        if given.then:
            after = parser().parse_args(["start", *given.then.split()])
            after.device, after.out, after.limit = given.device, given.out, given.limit
            do_start(after, stage, stop_others)

    try:
        kind.run(replace(context_of(given, stage), start_next=start_next))
    except OutOfTime as error:
        say(f"{kind.name}: {error}; run it again to continue")
        return 3
    start_next(stop_others=True)
    return 0


def do_start(given: argparse.Namespace, stage: Stage, stop_others: bool = False) -> None:
    Lab(stage, given.device).start(given.kind.engines(context_of(given, stage)), stop_others)


def do_core(given: argparse.Namespace, stage: Stage) -> int:
    Lab(stage, given.device).need_gpu()
    return _run_steps(CORE, given, stage)


def do_dry(given: argparse.Namespace, stage: Stage) -> int:
    given.device, given.limit = "cpu", STEP_SECONDS
    try:
        return _run_steps(given.only, given, stage)
    finally:
        do_stop(given, stage)


def _run_steps(all_words: Sequence[str], given: argparse.Namespace, stage: Stage) -> int:
    """All steps, even if one fails."""
    failed = 0
    for words in all_words:
        of_step = parser().parse_args(["step", *words.split()])
        of_step.device, of_step.out, of_step.limit = given.device, given.out, given.limit
        say(f"== {words}")
        try:
            # A step that ran out of time continues once: 15 runs and the start of their servers may take longer.
            failed += do_step(of_step, stage) != 0 and do_step(of_step, stage) != 0
        except (ServerFailed, SystemExit) as error:
            failed += 1
            say(f"{words} failed: {error}")
        except Exception:
            failed += 1
            say(f"{words} failed:\n{traceback.format_exc()}")
    return failed


def do_stop(given: argparse.Namespace, stage: Stage) -> None:
    processes = Lab(stage, given.device).processes
    processes.stop(processes.all())
    if given.device == "cuda":
        mps.stop(stage)


if __name__ == "__main__":
    sys.exit(main())
