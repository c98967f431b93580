"""Versions of vLLM that this plugin supports. It also tries other versions from OLDEST on; if something is
missing there, nothing is captured."""

from __future__ import annotations

import re
from typing import Final

# Versions with which the plugin captured in real engines, and how; docs/guides/vllm.md has the details.
RUN: Final = {(0, 26): "its CUDA build on an H200", (0, 32): "its CPU build"}
# MultiConnector joins its children's parameters since 0.25; MoE layers are MoERunner objects since 0.24.
OLDEST: Final = (0, 25)


def parsed(version: str) -> tuple[int, int] | None:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def verdict(version: str) -> tuple[str, str]:
    """("known" | "untested" | "old", a sentence for the log)."""
    found = parsed(version)
    run = ", ".join(f"{major}.{minor} ({how})" for (major, minor), how in RUN.items())
    if found is None:
        return "untested", f"vLLM {version} is not a released version; this plugin was run with {run}"
    if found < OLDEST:
        return (
            "old",
            f"vLLM {version} is older than {OLDEST[0]}.{OLDEST[1]}; its MultiConnector drops what a second connector hands off",
        )
    if found in RUN:
        return "known", f"vLLM {version}; this plugin was run with {run}"
    return "untested", f"vLLM {version} was not run with this plugin, only {run}; compare counts before relying on them"
