"""Descriptions of vLLM servers, and the commands that start them on a GPU or, for a dry run, on the CPU build."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from staging.paths import CHECKOUT, HERE, Stage

from . import mps
from .models import model_folder

DeviceName = Literal["cuda", "cpu"]
# What is kept of tiny6 in a prefill server that shares the folder, and so NIXL's handshake, of the wide model.
NARROW: Final = {"hidden_size": 192, "moe_intermediate_size": 32, "rms_norm_eps": 1e-06}
# Nearly every batch size: padding rows of graphs use experts too.
FINE_SIZES: Final = (1, 2, 4, *range(6, 33, 2), 36, 40, 48, 64)


@dataclass(frozen=True, slots=True)
class Engine:
    """One vLLM server. Settings that only a GPU has are left out on a CPU."""

    name: str
    model: str = "wide"
    transfer: Mapping[str, Any] | None = None
    max_len: int = 2048
    max_step_tokens: int = 2048
    max_requests: int = 64
    cache: str = "1G"
    share: float = 0.1  # of the GPU's memory, which vLLM wants to be free at the start
    block_size: int | None = None
    blocks: int | None = None
    graph_sizes: tuple[int, ...] | None = None
    is_eager: bool = False
    runner: Literal["V1", "V2"] = "V1"
    returns_experts: bool = False  # vLLM's own capture
    prefix_caching: bool = True
    overrides: Mapping[str, Any] = field(default_factory=dict)
    inside: Mapping[str, Any] = field(default_factory=dict)  # eldr_inside/__init__.py
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_wide(self) -> bool:
        return self.model == "wide" and "hidden_size" not in self.overrides

    @property
    def is_dummy(self) -> bool:
        return self.model not in ("tiny6", "wide")


def nixl(role: str, **settings: Any) -> dict[str, Any]:
    return {"kv_connector": "NixlConnector", "kv_role": role, "kv_connector_extra_config": settings}


def eldr(role: str, **settings: Any) -> dict[str, Any]:
    return {"kv_connector": "EldrConnector", "kv_role": role, "kv_connector_extra_config": settings}


def multi(role: str, *children: dict[str, Any]) -> dict[str, Any]:
    return {"kv_connector": "MultiConnector", "kv_role": role, "kv_connector_extra_config": {"connectors": list(children)}}


def both(role: str, **settings: Any) -> dict[str, Any]:
    """NIXL and the plugin, as docs/guides/vllm.md recommends."""
    return multi(role, nixl(role), eldr(role, **settings))


def command_of(engine: Engine, stage: Stage, device: DeviceName, port: int) -> list[str]:
    folder = model_folder(stage, engine.model, device == "cpu")
    command = [stage.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "model", *flags_of(engine, device)]
    if engine.transfer is not None:
        command += ["--kv-transfer-config", json.dumps(_for_device(engine.transfer, device))]
    return command


def flags_of(engine: Engine, device: DeviceName) -> list[str]:
    """Flags without paths, ports and connectors: these stand in the results."""
    on_cpu = device == "cpu"
    max_len = min(engine.max_len, 1024) if on_cpu else engine.max_len
    flags = ["--max-model-len", str(max_len), "--max-num-seqs", str(engine.max_requests)]
    flags += ["--max-num-batched-tokens", str(engine.max_step_tokens)]
    if on_cpu:
        flags += ["--enforce-eager", "--dtype", "float32"]
    else:
        flags += ["--kv-cache-memory-bytes", engine.cache, "--gpu-memory-utilization", str(engine.share)]
        if engine.is_eager:
            flags += ["--enforce-eager"]
        elif engine.graph_sizes:
            flags += ["--compilation-config", json.dumps({"cudagraph_capture_sizes": list(engine.graph_sizes)})]
        if engine.returns_experts:
            flags += ["--enable-return-routed-experts"]
    if engine.block_size is not None:
        flags += ["--block-size", str(engine.block_size)]
    if engine.blocks is not None:
        flags += ["--num-gpu-blocks-override", str(engine.blocks)]
    if not engine.prefix_caching:
        flags += ["--no-enable-prefix-caching"]
    if engine.is_wide:
        flags += ["--load-format", "wide"]
    elif engine.is_dummy:
        flags += ["--load-format", "dummy", "--skip-tokenizer-init"]
    if engine.overrides:
        flags += ["--hf-overrides", json.dumps(dict(engine.overrides))]
    return [*flags, *engine.flags]


def environment_of(engine: Engine, stage: Stage, device: DeviceName, nixl_port: int) -> dict[str, str]:
    # Without what differs between commands: a server must be recognized by a later one.
    dropped = ("PYTHONDONTWRITEBYTECODE", "OUT", "ELDR_COMMIT", "ELDR_STAGE")
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    path = [CHECKOUT / "python", HERE / "inside", entry_points(stage), *([stage.site] if stage.site.is_dir() else [])]
    env |= {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CACHE_ROOT": str(stage.root / "vllm-cache"),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(nixl_port),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "300",
        "OMP_NUM_THREADS": "1",
    }
    env |= on_cpu() if device == "cpu" else on_gpu(stage)
    if engine.runner == "V2":
        env["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    inside = {**engine.inside, **({"wide": True} if engine.is_wide else {}), **({"dummy": True} if engine.is_dummy else {})}
    if inside:
        env["ELDR_INSIDE"] = json.dumps(inside)
    return env | dict(engine.env)


def on_gpu(stage: Stage) -> dict[str, str]:
    # Without flashinfer: vLLM's own sampler. DeepGEMM would compile kernels at the first request.
    return {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0", **(mps.variables(stage) if mps.is_running(stage) else {})}


def on_cpu() -> dict[str, str]:
    """For few cores: one process per engine, no spinning threads."""
    return {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "ELDR_NIXL_DELAY_US": "1000",
    }


def entry_points(stage: Stage) -> Path:
    """Package metadata through which vLLM finds the plugins, which are used from the checkout."""
    for name, target in (("eldr", "eldr_vllm:register"), ("eldr_inside", "eldr_inside:register")):
        folder = stage.entry_points / f"{target.split(':')[0]}-0.1.0.dist-info"
        if not (folder / "entry_points.txt").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {target.split(':')[0]}\nVersion: 0.1.0\n")
            (folder / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {target}\n")
    return stage.entry_points


def _for_device(transfer: Mapping[str, Any], device: DeviceName) -> dict[str, Any]:
    """On a CPU, NIXL is told where its buffers are."""
    out = dict(transfer)
    if device == "cpu" and out["kv_connector"] == "NixlConnector":
        out["kv_buffer_device"] = "cpu"
    extra = dict(out.get("kv_connector_extra_config", {}))
    if "connectors" in extra:
        extra["connectors"] = [_for_device(child, device) for child in extra["connectors"]]
    return {**out, "kv_connector_extra_config": extra}
