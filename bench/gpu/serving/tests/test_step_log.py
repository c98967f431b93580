"""Which recorded steps count, and what is summed over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab import step_log


def row(done: float, planned: float, requests: int = 2, tokens: int = 2, experts: list[int] | None = None) -> list[Any]:
    return [done, planned, requests, tokens, 100, experts, None]


def test_time_is_from_the_end_of_the_step_before() -> None:
    (step,) = step_log.decode_steps([row(1.000, 0.99), row(1.004, 0.999, experts=[8, 10])])
    assert round(step.ms, 6) == 4
    assert (step.batch, step.mean_experts) == (2, 9)


def test_steps_with_prefill_and_those_after_them_do_not_count() -> None:
    rows = [row(1.0, 0.99), row(1.01, 1.0, 2, 70), row(1.02, 1.01), row(1.03, 1.02)]
    assert [step.done for step in step_log.decode_steps(rows)] == [1.03]


def test_steps_after_a_pause_do_not_count() -> None:
    assert step_log.decode_steps([row(1.0, 0.99), row(1.5, 1.49)]) == []


def test_a_step_planned_right_after_the_one_before_counts() -> None:
    assert len(step_log.decode_steps([row(1.0, 0.99), row(1.004, 1.0003)])) == 1


def test_only_the_window_counts() -> None:
    rows = [row(1 + index / 100, 0.99 + index / 100) for index in range(10)]
    assert [round(step.done, 2) for step in step_log.decode_steps(rows, 1.035, 1.055)] == [1.04, 1.05]


def test_work_and_table_by_batch() -> None:
    rows = [row(1.0, 0.9), row(1.01, 1.0, 2, 2, [8, 8]), row(1.03, 1.01, 4, 4, [12, 14]), row(1.06, 1.03, 4, 4, [16, 18])]
    steps = step_log.decode_steps(rows)
    assert step_log.work(steps) == {"steps": 3, "batch": round(10 / 3, 3), "experts": round((8 + 13 + 17) / 3, 3)}
    assert step_log.by_batch(steps) == {"batch": [2, 4], "steps": [1, 2], "experts": [8, 15], "ms": [10, 25]}
    assert step_log.work([]) == {"steps": 0}


def test_an_incomplete_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "steps"
    file.write_text("[1,2,3,4,5,null,null]\n[1,2")
    assert step_log.read_rows(file) == [[1, 2, 3, 4, 5, None, None]]
    assert step_log.read_rows(tmp_path / "missing") == []


def test_thinning_is_even_and_keeps_the_first() -> None:
    assert step_log.thinned(3, 5) == [0, 1, 2]
    assert step_log.thinned(10, 5) == [0, 2, 4, 6, 8]
