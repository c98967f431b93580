"""Joins the counts of pipeline stages: concatenates the layers of all stages."""

from __future__ import annotations

import numpy as np

from .messages import Counted, Part, sums_of
from .store import Array


def counts(parts: list[Part]) -> dict[str, Counted]:
    """Counts by request."""
    shares: dict[str, list[Counted]] = {}
    for part in parts:
        sums = sums_of(part)
        if sums is None:
            continue
        for row, rid in enumerate(part.requests):
            recent = None if sums.recent is None else sums.recent[row]
            shares.setdefault(rid, []).append(Counted(sums.counts[row], int(sums.covered[row]), recent))
    return {rid: _stacked(share) for rid, share in shares.items()}


def _stacked(share: list[Counted]) -> Counted:
    if len(share) == 1:
        return share[0]
    recents = [counted.recent for counted in share if counted.recent is not None]
    return Counted(
        np.concatenate([counted.counts for counted in share]),
        min(counted.covered for counted in share),
        np.concatenate(recents) if len(recents) == len(share) else None,
    )


def records(parts: list[Part]) -> dict[tuple[str, int], Array]:
    """Experts of each generated token, [layers, top_k], by request and position."""
    shares: dict[tuple[str, int], list[Array]] = {}
    for part in parts:
        if part.records is None:
            continue
        rows = part.records.get()
        for key, row in zip(part.record_keys, rows, strict=True):
            shares.setdefault(key, []).append(row)
    return {key: np.concatenate(share) for key, share in shares.items()}
