"""Result files: saved after every measurement, continued with the same settings, never mixed with dry runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.results import OutOfTime, Result


def result(tmp_path: Path, settings: dict[str, Any] | None = None, is_dry: bool = False, limit_s: float = 100) -> Result:
    return Result("served", "served", "served", settings or {"rate": 1}, [tmp_path / "stage", tmp_path / "out"], is_dry, limit_s)


def fails() -> Any:
    raise AssertionError("measured again")


def test_what_is_saved_is_not_measured_again(tmp_path: Path) -> None:
    first = result(tmp_path)
    first.item("runs", {"policy": "jsq", "round": 0}, lambda: {"p50": 12})
    first.part("calibration", lambda: 7)
    second = result(tmp_path)
    assert second.item("runs", {"policy": "jsq", "round": 0}, fails) == {"policy": "jsq", "round": 0, "p50": 12}
    assert second.part("calibration", fails) == 7
    second.item("runs", {"policy": "jsq", "round": 1}, lambda: {"p50": 13})
    assert [run["p50"] for run in result(tmp_path).body["runs"]] == [12, 13]


def test_a_file_that_was_fetched_away_is_found_in_the_stage(tmp_path: Path) -> None:
    result(tmp_path).part("a", lambda: 1)
    (tmp_path / "out" / "served.json").unlink()
    assert result(tmp_path).part("a", fails) == 1


@pytest.mark.parametrize(("settings", "is_dry"), [({"rate": 2}, False), ({"rate": 1}, True)])
def test_other_settings_and_dry_runs_start_over(tmp_path: Path, settings: dict[str, Any], is_dry: bool) -> None:
    result(tmp_path).part("a", lambda: 1)
    other = result(tmp_path, settings, is_dry)
    assert other.part("a", lambda: 2) == 2
    assert other.value["status"] == ("dry" if is_dry else "partial")


def test_a_step_stops_before_a_measurement_that_it_cannot_finish(tmp_path: Path) -> None:
    made = result(tmp_path, limit_s=10)
    with pytest.raises(OutOfTime):
        made.part("long", fails, needs_s=11)
    assert json.loads((tmp_path / "out" / "served.json").read_text())["status"] == "partial"


def test_status_of_a_finished_step(tmp_path: Path) -> None:
    made = result(tmp_path)
    made.finish()
    assert result(tmp_path).is_complete
    dry = result(tmp_path, is_dry=True)
    dry.finish()
    assert dry.value["status"] == "dry"


def test_a_body_that_is_a_list(tmp_path: Path) -> None:
    made = Result("features", "features", "features", {}, [tmp_path], False, 100)
    made.item("", {"feature": "chunks"}, lambda: {"verdict": "run"})
    made.item("", {"feature": "chunks"}, fails)
    assert made.value["features"] == [{"feature": "chunks", "verdict": "run"}]
