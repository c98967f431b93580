"""A feature whose trial fails is not started, and its verdict has the error."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
from lab.lab import Lab
from staging.paths import stage_in
from steps import features
from steps.common import Context


@pytest.mark.parametrize(
    ("trial", "error"),
    [("", ""), ("import json", ""), ("import not_there", "ModuleNotFoundError: No module named 'not_there'"), ("exit(3)", "exit code 3")],
)
def test_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: str, error: str) -> None:
    context = Context(Lab(stage_in(str(tmp_path)), "cuda"), tmp_path, options=argparse.Namespace(only=None))
    feature = replace(features.features(context)[0], trial=trial)
    monkeypatch.setattr(features, "features", lambda _: [feature])
    assert features.failed_trial(context, feature) == error
    started = [engine.name for engine in features.servers_of(context)]
    assert started == ["f-plain", *([] if error else [feature.engine.name])]
    if error:
        assert features.judged(context, feature, {}, []) == {"verdict": "not run", "note": f"`{trial}` fails: {error}"}
