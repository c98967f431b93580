"""Timing on a device: CUDA graphs replayed between events, and the description of the machine."""

import datetime
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch

WARM = 2


class Clock:
    """Captures work as CUDA graphs and times it; without a GPU it calls the work and reads the host's clock."""

    def __init__(self, device: torch.device, reps: int):
        self.device, self.reps = device, reps
        self.cuda = device.type == "cuda"

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        if not self.cuda:
            return work
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()  # compiles kernels and creates handles, outside the capture
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def times(self, replay: Callable[[], Any], reps: int | None = None) -> list[float]:
        """Microseconds of each of `reps` runs after a warm-up. Runs are queued back to back, so gaps on the host do not count."""
        n = reps or self.reps
        for _ in range(WARM):
            replay()
        if not self.cuda:
            out = []
            for _ in range(n):
                t = time.perf_counter()
                replay()
                out.append((time.perf_counter() - t) * 1e6)
            return out
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
        for start, end in events:
            start.record()
            replay()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]


def summary(us: list[float]) -> dict[str, Any]:
    return {"us": round(statistics.median(us), 2), "min": round(min(us), 2), "max": round(max(us), 2), "reps": len(us)}


def smi(fields: str = "name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu") -> dict[str, str]:
    """Output of nvidia-smi; empty without it. Read-only."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return {}
    try:
        done = subprocess.run([tool, f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        return dict(zip(fields.split(","), (v.strip() for v in done.stdout.splitlines()[0].split(",")), strict=False))
    except (OSError, subprocess.SubprocessError, IndexError):
        return {}


def provenance(device: torch.device) -> dict[str, Any]:
    out: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "dtype": "bfloat16",
        "device": str(device),
    }
    if device.type == "cuda":
        import triton

        p = torch.cuda.get_device_properties(device)
        out |= {
            "gpu": p.name,
            "multiprocessors": p.multi_processor_count,
            "memory_bytes": p.total_memory,
            "l2_bytes": getattr(p, "L2_cache_size", None),
            "cuda": torch.version.cuda,
            "triton": triton.__version__,
            "nvidia_smi": smi(),
        }
    else:
        out["note"] = "a dry run on a CPU: times mean nothing"
    return out


def copy_bandwidth(clock: Clock, size: int) -> dict[str, Any]:
    """Bytes moved per second by a copy inside the device (what a KV hand-off cannot beat on one GPU) and to and from pinned host memory."""
    a = torch.empty(size, dtype=torch.uint8, device=clock.device).random_()
    b = torch.empty_like(a)
    t = summary(clock.times(lambda: b.copy_(a)))
    out: dict[str, Any] = {
        "bytes": size,
        "device": t,
        "device_gb_s_payload": size / t["us"] / 1e3,
        "device_gb_s_read_and_written": 2 * size / t["us"] / 1e3,
    }
    if clock.cuda:
        small = min(size, 1 << 28)
        host = torch.empty(small, dtype=torch.uint8, pin_memory=True)
        for name, work in (
            ("to_host", lambda: host.copy_(a[:small], non_blocking=True)),
            ("from_host", lambda: a[:small].copy_(host, non_blocking=True)),
        ):
            t = summary(clock.times(work))
            out[name] = t
            out[f"{name}_gb_s"] = small / t["us"] / 1e3
    return out
