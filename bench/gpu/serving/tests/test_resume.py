"""What a command may take as done: results of its stage, never those of the repository."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import run
from lab.lab import Lab
from lab.results import FORMAT
from lab.servers import ServerFailed
from staging.paths import COMMITTED, stage_in
from steps import kinds
from steps.common import Context


def step(tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch, *, out: Path | None = None) -> None:
    """Runs a step on a machine without a GPU, as run.py does."""
    monkeypatch.setattr("lab.mps.sees_gpu", lambda: False)
    given = run.parser().parse_args(["--stage", str(tmp_path), "step", *words.split(), *(["--out", str(out)] if out else [])])
    run.do_step(given, stage_in(given.stage))


@pytest.mark.parametrize("words", ["capture", "capture --set twin", "padding", "features", "nixl", "texts", "profile", "tpot"])
@pytest.mark.parametrize("out", [None, COMMITTED])
def test_committed_results_do_not_count_as_done(words: str, out: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clean stage every step measures, so it asks for servers or for the files of an earlier step."""
    with pytest.raises((ServerFailed, SystemExit), match=r"no NVIDIA GPU|run the step"):
        step(tmp_path, words, monkeypatch, out=out)


def test_a_step_that_is_complete_on_the_stage_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = json.loads((COMMITTED / "padding.json").read_text())
    stage, out = tmp_path / "results", tmp_path / "out"
    stage.mkdir()
    (stage / "padding.json").write_text(json.dumps(committed))
    step(tmp_path, "padding", monkeypatch, out=out)
    assert f"already done: {stage / 'padding.json'}; delete it to measure again" in capsys.readouterr().out
    assert json.loads((out / "padding.json").read_text()) == committed


def test_predictions_use_the_profile_of_the_stage(tmp_path: Path) -> None:
    from steps import predict

    context = Context(Lab(stage_in(str(tmp_path)), "cuda"), COMMITTED, options=argparse.Namespace(again=False))
    with pytest.raises(SystemExit, match="run the step `profile` first"):
        predict.fit_profile(context)


def test_list_tells_committed_results_from_those_of_the_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(step: str) -> str:
        assert run.main(["--stage", str(tmp_path), "list"]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line[:44].strip() == step]
        return line

    assert "not run here; committed" in listed("padding")
    saved = tmp_path / "results" / "padding.json"
    saved.parent.mkdir()
    value: dict[str, Any] = {"format": FORMAT, "status": "partial", "settings": {}}
    saved.write_text(json.dumps(value))
    assert " partial " in listed("padding")
    saved.write_text("{")
    assert "damaged file" in listed("padding")


def test_every_kind_is_listed() -> None:
    assert {words.split()[0] for words in run._all_steps()} == {kind.name for kind in kinds()}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["dry", "--out", "x", "--only", "frob"], "unknown: frob; the steps are prepare, profile"),
        (["wheelhouse", "--out", "x", "--part-mib", "0"], "a part has at least 25 MiB"),
        (["step", "tpot", "--policies", "jsq,frob"], "unknown: frob; the policies are"),
        (["step", "tpot", "--policies", "band,union"], "jsq is missing, which the others are compared with"),
        (["step", "tpot", "--policies", "jsq,union,jsq"], "a policy is named twice"),
        (["step", "predict", "--policies", ""], "unknown: "),
        (["step", "capture-cost", "--model", "qwen4"], "invalid choice: 'qwen4'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        run.main(words)
    assert error.value.code == 2
    assert text in capsys.readouterr().err


def test_a_stage_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stage"
    file.write_text("")
    assert run.main(["--stage", str(file), "check"]) == 1
    assert "is a file: name a folder with --stage" in capsys.readouterr().out


def test_the_core_set_without_a_gpu_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.mps.sees_gpu", lambda: False)
    assert run.main(["--stage", str(tmp_path), "core"]) == 1
    said = capsys.readouterr().out
    assert "no NVIDIA GPU" in said
    assert "==" not in said


def test_the_core_set_fits_its_limits_and_readme_says_how_long_it_takes() -> None:
    for words in run.CORE:
        of_step = run.parser().parse_args(["step", *words.split()])
        assert of_step.kind.seconds(of_step) <= 540
    assert run.core_minutes() <= 25
    readme = (Path(run.__file__).parent / "README.md").read_text()
    assert f"the core set: about {run.core_minutes():.0f} minutes on an H200" in readme


def test_the_policies_are_those_of_the_issue_and_the_two_that_came_later() -> None:
    of_step = run.parser().parse_args(["step", "tpot"])
    assert of_step.policies == "round_robin,jsq,band,eldr,union"


def test_a_step_that_ran_out_of_time_continues_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter([3, 0, 3, 3])
    monkeypatch.setattr(run, "do_step", lambda given, stage: next(codes))
    given = argparse.Namespace(device="cpu", out=None, limit=1)
    assert run._run_steps(["padding", "nixl"], given, stage_in(str(tmp_path))) == 1


def test_parts_are_below_60_mb_unless_asked() -> None:
    given = run.parser().parse_args(["wheelhouse", "--out", "x"])
    assert given.part_mib * 2**20 < 60e6


@pytest.mark.parametrize(("words", "advice"), [(["dry", "--out", "x"], "vLLM's CPU build"), (["core"], "Run the command `install` first")])
def test_advice_without_numpy(words: list[str], advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = ModuleNotFoundError("No module named 'numpy'")
    assert run.again_with_packages(["--stage", str(tmp_path), *words], missing) == 1
    assert advice in capsys.readouterr().out


def test_install_wants_the_python_of_the_pinned_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from staging import parts, wheelhouse

    monkeypatch.setattr(wheelhouse, "PYTHON", (2, 7))
    with pytest.raises(parts.BadPart, match=r"the pinned packages are for 2\.7: run it with python2\.7"):
        wheelhouse.install(tmp_path, print)
    assert not (tmp_path / "venv").exists()


def test_check_says_in_one_line_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from staging import check
    from staging.paths import Stage

    monkeypatch.setattr(Stage, "node", property(lambda stage: str(tmp_path / "no-node")))
    monkeypatch.setattr(check, "_PROBE", "raise ModuleNotFoundError('No module named torch')")
    said: list[str] = []
    assert not check.check(stage_in(str(tmp_path)), "cpu", said.append)
    assert any("install Node, or unpack" in line for line in said)
    assert "ModuleNotFoundError: No module named torch – run `run.py unpack`" in said[-1]
    assert all("Traceback" not in line and "\n" not in line for line in said)
