"""Host time of the plugin's functions in a server with timers, per request (inside/eldr_inside/timers.py)."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

from lab import prompts
from lab.legs import Client, prefill_leg

from .common import Context


def host_times(context: Context, client: Client, reader: Client, pool: list[int], length: int, requests: int) -> dict[str, Any]:
    rng = random.Random(length + 1)
    for _ in range(3):
        prefill_leg(client, reader, prompts.random_prompt(pool, length, rng))
    before = _read(context)
    for _ in range(requests):
        prefill_leg(client, reader, prompts.random_prompt(pool, length, rng))
    after = _read(context)
    functions = {}
    for name, (calls, ns) in after["calls"].items():
        calls0, ns0 = before["calls"].get(name, (0, 0))
        if calls > calls0:
            functions[name] = {
                "callsPerRequest": round((calls - calls0) / requests, 2),
                "usPerRequest": round((ns - ns0) / 1000 / requests, 1),
            }
    return {"requests": requests, "functions": functions, "missing": after["missing"], "unit": "µs of host time, callers include callees"}


def _read(context: Context) -> dict[str, Any]:
    """Of the engine that wrote last; waits until its file is fresh."""
    time.sleep(1.2)
    written = sorted(Path(context.lab.stage.run).glob("timers.*.json"), key=lambda path: path.stat().st_mtime)
    return dict(json.loads(written[-1].read_text())) if written else {"calls": {}, "missing": []}
