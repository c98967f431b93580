"""The experiments."""

from __future__ import annotations

from .common import StepKind


def kinds() -> list[StepKind]:
    from . import capture, capture_cost, capture_profile, predict, prepare, profile, tpot

    return [kind for module in (capture, prepare, profile, capture_cost, capture_profile, predict, tpot) for kind in module.kinds()]
