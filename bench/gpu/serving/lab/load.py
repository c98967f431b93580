"""Sends a load with the project's own client (load.mjs), and counts what the decode engines did meanwhile."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from staging.paths import HERE

from .lab import Lab
from .servers import Server, ServerFailed, total

_QUANTILES = ("tpotMs", "itlMs", "ttftMs", "e2eMs")


def send_load(lab: Lab, server: Server, name: str, prompts: Path, timeout_s: float, **flags: Any) -> dict[str, Any]:
    """Figures of `eldr bench`, with the times of every counted request. flags: those of `eldr bench`."""
    out = lab.stage.run / f"load-{name}.json"
    out.unlink(missing_ok=True)
    given = {"url": server.url, "prompts": str(prompts), **flags}
    command = [lab.stage.node, str(HERE / "load.mjs"), str(lab.stage.project / "dist"), str(out), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if not out.exists():
        raise ServerFailed(f"the load client ended with {done.returncode}: {done.stderr[-1500:]}")
    return dict(json.loads(out.read_text()))


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """What a result file keeps of a load."""
    lag = result["client"]["sendLagMs"]["p99"]
    return {
        **{key: {name: _round(value) for name, value in result[key].items()} for key in _QUANTILES},
        "requests": result["requests"],
        "requestsPerSecond": _round(result["throughput"]["requestsPerSecond"]),
        "outputTokensPerSecond": _round(result["throughput"]["outputTokensPerSecond"]),
        "promptTokensMean": _round(result["tokens"]["promptMean"]),
        "client": {"keptUp": result["client"]["keptUp"], "sendLagMsP99": _round(lag), "cpuShare": _round(result["client"]["cpuShare"])},
        **({"errors": result["errors"]} if result["errors"] else {}),
    }


def work_of(servers: list[Server]) -> list[dict[str, float]]:
    """The plugin's counters of each server."""
    out = []
    for server in servers:
        values = server.metrics()
        names = {
            "steps": "eldr_decode_steps_total",
            "requests": "eldr_decode_step_requests_total",
            "experts": "eldr_experts_activated_total",
        }
        out.append({key: total(values, name) for key, name in names.items()})
    return out


def work_between(before: list[dict[str, float]], after: list[dict[str, float]], layers: int) -> list[dict[str, float]]:
    """Steps, requests per step, and distinct experts per step and layer, of each server."""
    out = []
    for first, last in zip(before, after, strict=True):
        steps = last["steps"] - first["steps"]
        batch = (last["requests"] - first["requests"]) / steps if steps else 0.0
        experts = (last["experts"] - first["experts"]) / steps / layers if steps else 0.0
        out.append({"steps": steps, "batch": round(batch, 3), "experts": round(experts, 3)})
    return out


def _round(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
