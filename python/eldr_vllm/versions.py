"""Versions of vLLM that this plugin supports. It also tries other versions from OLDEST on; if something is
missing there, nothing is captured."""

from __future__ import annotations

import re
from typing import Final

TESTED: Final = ((0, 32),)
# Since 0.25 MultiConnector joins the kv_transfer_params of its children; since 0.24 MoE layers are MoERunner
# objects.
OLDEST: Final = (0, 25)


def parsed(version: str) -> tuple[int, int] | None:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def verdict(version: str) -> tuple[str, str]:
    """("known" | "untested" | "old", a sentence for the log)."""
    found = parsed(version)
    tested = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
    if found is None:
        return "untested", f"vLLM {version} is not a released version; tested with {tested}"
    if found < OLDEST:
        return (
            "old",
            f"vLLM {version} is older than {OLDEST[0]}.{OLDEST[1]}; its MultiConnector drops what a second connector hands off",
        )
    if found in TESTED:
        return "known", f"vLLM {version}, a version this plugin is tested with"
    return (
        "untested",
        f"vLLM {version} is not one this plugin is tested with ({tested}); compare counts before relying on them",
    )
