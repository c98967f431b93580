"""A prediction is of what is served: the same policies with the same costs of a step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from lab.lab import Lab
from staging.paths import stage_in
from steps import predict, tpot
from steps.common import Context


def test_union_is_served_as_it_ships_and_predicted_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(Lab(stage_in(str(tmp_path)), "cuda"), tmp_path, options=argparse.Namespace(again=False))
    commands: list[list[str]] = []

    def output_of(command: list[str], folder: Path) -> str:
        commands.append(command)
        return "{}"

    monkeypatch.setattr(predict, "output_of", output_of)
    settings: dict[str, Any] = {"decoders": 4, "rate": 13.5, "rounds": 3, "seed": 11, "warmupSeconds": 6, "countedSeconds": 17}
    settings["policies"] = ["jsq", "band", "eldr", "union"]
    predict.simulate(context, settings, tmp_path / "a", tmp_path / "b", ["load-0.jsonl"])
    (command,) = commands
    assert command[command.index("--policies") + 1] == "jsq,band,eldr,union@learnt"
    served = tpot.gateway_flags("union", tmp_path / "a")
    assert served[served.index("--step-cost") + 1] == "learnt"
    # Costs that are learnt begin with those of a profile, if one is named; those of the simulator with the built-in ones.
    assert "--profile" not in served


def test_a_result_says_which_costs_were_used(tmp_path: Path) -> None:
    options = argparse.Namespace(decoders=4, batch=10, rate=None, rounds=3, policies="jsq,union", seconds=17, seed=11)
    settings = tpot.settings_of(Context(Lab(stage_in(str(tmp_path)), "cuda"), tmp_path, options=options))
    assert tpot.about(settings)["stepCost"] == "learnt"
