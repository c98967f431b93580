"""torch's profiler for the next steps of a server. `touch FOLDER/go` starts it; after STEPS steps with tokens the
sums of all operations are in FOLDER/operations.json."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

STEPS: Final = 8
_COLUMNS: Final = ("count", "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total")


class Profile:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._profiler: Any = None
        self._left = 0
        self._looked = 0.0

    def before(self) -> None:
        now = time.monotonic()
        if self._profiler is not None or now - self._looked < 0.2:
            return
        self._looked = now
        if not (self.folder / "go").exists():
            return
        (self.folder / "go").unlink()
        from torch.profiler import ProfilerActivity, profile

        try:  # the engine must survive a machine that refuses profiling, such as under MPS
            profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
            profiler.__enter__()
        except Exception as error:
            self._write({"failed": f"{type(error).__name__}: {error}"})
            return
        self._profiler, self._left = profiler, STEPS

    def after(self) -> None:
        if self._profiler is None:
            return
        self._left -= 1
        if self._left > 0:
            return
        profiler, self._profiler = self._profiler, None
        try:
            profiler.__exit__(None, None, None)
            self._write({"steps": STEPS, "unit": "µs", "operations": _operations(profiler)})
        except Exception as error:
            self._write({"failed": f"{type(error).__name__}: {error}"})

    def _write(self, value: dict[str, Any]) -> None:
        (self.folder / "operations.new").write_text(json.dumps(value))
        os.replace(self.folder / "operations.new", self.folder / "operations.json")


def _operations(profiler: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": str(event.key)[:120], **{column: getattr(event, column, 0) for column in _COLUMNS}} for event in profiler.key_averages()
    ]
    rows.sort(key=lambda row: -row["self_device_time_total"] - row["self_cpu_time_total"])
    return rows[:120]


def install(folder: str) -> None:
    from vllm.v1.worker import gpu_worker

    profile = Profile(Path(folder))
    profile.folder.mkdir(parents=True, exist_ok=True)
    worker: Any = gpu_worker.Worker
    run = worker.execute_model

    def profiled(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens == 0:
            return run(self, scheduler_output, *args, **kwargs)
        profile.before()
        try:
            return run(self, scheduler_output, *args, **kwargs)
        finally:
            profile.after()

    worker.execute_model = profiled
