"""Intervals and fits, against values from textbooks and against simulation."""

from __future__ import annotations

import random

import numpy as np
import pytest
from lab import stats


def test_students_t() -> None:
    assert stats.student_t(1) == pytest.approx(12.706, abs=1e-3)
    assert stats.student_t(30) == pytest.approx(2.0423, abs=1e-3)
    assert stats.student_t(119) == pytest.approx(1.9801, abs=1e-3)


def test_mean_interval() -> None:
    got = stats.mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert got["mean"] == 3
    assert got["high"] - got["mean"] == pytest.approx(2.7764 * 1.5811 / 5**0.5, abs=1e-3)


def test_median_interval_of_ten_values() -> None:
    # Order statistics 2 and 9 cover the median with 97.9 %, 3 and 8 only with 89 %.
    got = stats.median_interval([float(value) for value in range(1, 11)])
    assert (got["median"], got["low"], got["high"]) == (5.5, 2, 9)


@pytest.mark.parametrize("interval", [stats.mean_interval, stats.median_interval])
def test_intervals_cover_the_truth_in_95_of_100_cases(interval: object) -> None:
    rng = random.Random(3)
    covered = 0
    for _ in range(1000):
        got = interval([rng.gauss(1, 2) for _ in range(40)])  # type: ignore[operator]
        covered += got["low"] <= 1 <= got["high"]
    assert 930 <= covered <= 985


def test_paired_differences_do_not_see_what_both_share() -> None:
    rng = random.Random(4)
    shared = [rng.uniform(0, 100) for _ in range(50)]
    got = stats.paired([value + 0.5 for value in shared], shared)
    assert got["mean"]["mean"] == pytest.approx(0.5)
    assert got["mean"]["high"] == pytest.approx(0.5)


def test_relative_change_is_in_percent() -> None:
    assert stats.relative_change([9, 18], [10, 20])["mean"] == pytest.approx(-10)


def test_linear_fit_finds_the_coefficients() -> None:
    rng = np.random.default_rng(5)
    experts, batch = rng.uniform(8, 64, 500), rng.integers(1, 64, 500)
    fit = stats.linear_fit([experts, batch], 2.1 + 0.26 * experts + 0.02 * batch + rng.normal(0, 0.1, 500))
    assert fit.coefficients == pytest.approx((2.1, 0.26, 0.02), abs=0.03)
    assert fit.r2 > 0.99
    assert fit.residual == pytest.approx(0.1, abs=0.02)
    for got, truth, error in zip(fit.coefficients, (2.1, 0.26, 0.02), fit.errors, strict=True):
        assert abs(got - truth) < 4 * error


def test_a_column_without_variation_gets_no_share() -> None:
    fit = stats.linear_fit([[1, 2, 3, 4], [8, 8, 8, 8]], [1, 2, 3, 4])
    assert fit.coefficients == pytest.approx((0, 1, 0), abs=1e-9)


def test_quantiles_of_nothing() -> None:
    assert stats.quantiles([]) == {"count": 0}
