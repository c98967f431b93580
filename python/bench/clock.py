"""Times work on the device and on the host. On a CPU only the host's, and everything once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

PAUSE_CYCLES = 3_000_000  # about 1.6 ms: longer than the host needs to queue the timed work


class Clock:
    def __init__(self, device: str) -> None:
        self.device = device
        self.on_gpu = device == "cuda"
        self.warm_ups, self.repeats = (8, 50) if self.on_gpu else (0, 1)
        self.name = torch.cuda.get_device_name() if self.on_gpu else "CPU, a rehearsal"

    def timed(self, run: Callable[[], Any]) -> dict[str, float]:
        device = self._on_device(run) if self.on_gpu else [0.0]
        host = []
        for _ in range(self.warm_ups + self.repeats):
            begin = time.perf_counter()
            kept = run()
            host.append((time.perf_counter() - begin) * 1e3)
            self.wait()
            del kept
        host = sorted(host[self.warm_ups :])
        return {
            "device_ms": round(statistics.median(device), 5),
            "host_ms": round(statistics.median(host), 5),
            "host_p90_ms": round(host[int(0.9 * (len(host) - 1))], 5),
        }

    def on_host(self, prepare: Callable[[], Any], run: Callable[[Any], Any]) -> dict[str, float]:
        """Times `run` on what `prepare` returned, after the device has finished."""
        host = []
        for _ in range(self.warm_ups + self.repeats):
            value = prepare()
            self.wait()
            begin = time.perf_counter()
            run(value)
            host.append((time.perf_counter() - begin) * 1e3)
        return {"host_ms": round(statistics.median(host[self.warm_ups :]), 5)}

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _on_device(self, run: Callable[[], Any]) -> list[float]:
        out = []
        for _ in range(self.warm_ups + self.repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            torch.cuda._sleep(PAUSE_CYCLES)
            torch.cuda.set_sync_debug_mode("error")
            start.record()
            kept = run()
            end.record()
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
            del kept
            out.append(start.elapsed_time(end))
        return out[self.warm_ups :]
