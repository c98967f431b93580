"""The experiments."""

from __future__ import annotations

from .common import StepKind


def kinds() -> list[StepKind]:
    from . import capture, capture_cost, capture_profile, features, nixl, padding, predict, prepare, profile, texts, tpot

    # Neighbours share servers.
    modules = (prepare, profile, padding, capture, capture_cost, capture_profile, nixl, predict, tpot, texts, features)
    return [kind for module in modules for kind in module.kinds()]
