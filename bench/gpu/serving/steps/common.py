"""What all steps share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.conditions import conditions
from lab.engines import Engine, flags_of
from lab.lab import Lab
from lab.models import facts
from lab.results import Result
from lab.servers import Server

STEP_SECONDS: Final = 520.0  # below 9 minutes, so that a command of 10 minutes ends by itself
TEMPERATURE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Context:
    lab: Lab
    out: Path
    limit_s: float = STEP_SECONDS
    options: argparse.Namespace = field(default_factory=argparse.Namespace)
    # Starts the servers of the next step. Steps that measure no times call it as soon as their own are ready.
    start_next: Callable[[], None] = lambda: None

    @property
    def is_dry(self) -> bool:
        return self.lab.is_dry

    def result(self, name: str, kind: str, key: str, settings: dict[str, Any]) -> Result:
        folders = [self.lab.stage.results, self.out]
        return Result(name, kind, key, settings, folders, self.is_dry, self.limit_s)

    def describe(self, result: Result, engine: Engine, server: Server | None = None) -> None:
        """Conditions, model and engine of a result."""
        model = facts(self.lab.stage, engine.model, self.is_dry)
        if server is not None:
            model |= _backends(server)
        about: dict[str, Any] = {
            "flags": flags_of(engine, self.lab.device),
            "graphs": not (engine.is_eager or self.is_dry),
            "runner": engine.runner,
            "plugin": engine.transfer is not None and "EldrConnector" in str(engine.transfer),
            "connectors": dict(engine.transfer or {}),
            "environment": {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0", **engine.env},
        }
        if engine.graph_sizes:
            about["graphSizes"] = list(engine.graph_sizes)
        if engine.block_size:
            about["blockSize"] = engine.block_size
        result.set(conditions=conditions(self.lab), model=model, engine=about)

    def steps_file(self, name: str) -> str:
        return str(self.lab.stage.run / f"{name}.steps")


def _backends(server: Server) -> dict[str, str]:
    """From the log: which kernels vLLM chose."""
    out: dict[str, str] = {}
    for line in server.lines("MoE backend", "attention backend"):
        words = line.split()
        if "Using" not in words:
            continue
        chosen = words[words.index("Using") + 1]
        out.setdefault("moeBackend" if "MoE backend" in line else "attentionBackend", chosen)
    return out


def no_options(parser: argparse.ArgumentParser) -> None:
    """For steps without options of their own."""


@dataclass(frozen=True, slots=True)
class StepKind:
    """A step of `run.py`. engines: the servers that it needs, so that they can be started ahead of it. variants:
    how `run.py list` shows it."""

    name: str
    help: str
    seconds: Callable[[argparse.Namespace], float]
    run: Callable[[Context], None]
    engines: Callable[[Context], Sequence[Engine]]
    result_name: Callable[[argparse.Namespace], str]
    options: Callable[[argparse.ArgumentParser], None] = no_options
    more: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        return [self.name, *(f"{self.name} {words}" for words in self.more)]
