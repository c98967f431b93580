"""Statistics of the results: summaries, intervals, paired differences, a linear fit. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = Sequence[float]


def quantiles(values: Numbers) -> dict[str, float]:
    """As `eldr bench` reports them; interpolated as in NumPy."""
    if len(values) == 0:
        return {"count": 0}
    p50, p90, p99 = np.percentile(np.asarray(values, float), [50, 90, 99])
    return {"count": len(values), **_rounded(mean=statistics.fmean(values), p50=p50, p90=p90, p99=p99)}


def mean_interval(values: Numbers) -> dict[str, float]:
    """Mean and its 95 % interval by Student's t."""
    count = len(values)
    mean = statistics.fmean(values)
    if count < 2:
        return {"count": count, **_rounded(mean=mean)}
    half = student_t(count - 1) * statistics.stdev(values) / math.sqrt(count)
    return {"count": count, **_rounded(mean=mean, low=mean - half, high=mean + half)}


def median_interval(values: Numbers) -> dict[str, float]:
    """Median and its 95 % interval between two order statistics (binomial); None of a distribution is assumed."""
    ordered, count = sorted(values), len(values)
    below, cumulated = 0, 0.5**count
    while below < count // 2 and cumulated <= 0.025:
        below += 1
        cumulated += math.comb(count, below) * 0.5**count
    low, high = ordered[max(0, below - 1)], ordered[min(count - 1, count - below)]
    return {"count": count, **_rounded(median=statistics.median(ordered), low=low, high=high)}


def student_t(freedom: int) -> float:
    """97.5 % quantile of Student's t: exact for few degrees of freedom, beyond them by the Cornish-Fisher series."""
    table = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
    if freedom <= len(table):
        return table[freedom - 1]
    z = 1.959964
    g1, g2 = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + g1 / freedom + g2 / freedom**2


def paired(with_: Numbers, without: Numbers) -> dict[str, Any]:
    """Differences of pairs, with − without."""
    differences = [a - b for a, b in zip(with_, without, strict=True)]
    return {"mean": mean_interval(differences), "median": median_interval(differences)}


def relative_change(values: Numbers, reference: Numbers) -> dict[str, float]:
    """Change in percent, pair by pair, with its interval over the pairs."""
    return mean_interval([100 * (a / b - 1) for a, b in zip(values, reference, strict=True)])


@dataclass(frozen=True, slots=True)
class Fit:
    coefficients: tuple[float, ...]
    errors: tuple[float, ...]  # standard errors
    r2: float
    residual: float  # standard deviation of the residuals
    count: int


def linear_fit(columns: Sequence[Numbers], values: Numbers) -> Fit:
    """Least squares of value = c0 + c1 · column1 + …; columns without variation get the coefficient 0."""
    target = np.asarray(values, float)
    rows = [np.ones(len(target)), *(np.asarray(column, float) for column in columns)]
    varies = [index for index, row in enumerate(rows) if index == 0 or np.ptp(row) > 0]
    matrix = np.stack([rows[index] for index in varies], axis=1)
    solved, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=None)
    rest = target - matrix @ solved
    freedom = max(1, len(target) - int(rank))
    variance = float(rest @ rest) / freedom
    inverse = np.linalg.pinv(matrix.T @ matrix)
    coefficients, errors = [0.0] * len(rows), [0.0] * len(rows)
    for at, index in enumerate(varies):
        coefficients[index], errors[index] = float(solved[at]), math.sqrt(max(0.0, variance * float(inverse[at, at])))
    spread = float(((target - target.mean()) ** 2).sum())
    r2 = 1 - float(rest @ rest) / spread if spread > 0 else 0.0
    return Fit(tuple(coefficients), tuple(errors), r2, math.sqrt(variance), len(target))


def _rounded(**values: float) -> dict[str, float]:
    return {key: round(float(value), 4) for key, value in values.items()}
