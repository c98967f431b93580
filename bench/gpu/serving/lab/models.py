"""Model folders for the servers: tiny6 as it is, tiny6 widened, and shapes of large models without weights."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from staging.paths import HERE, Stage

sys.path.insert(0, str(HERE / "inside"))
from eldr_inside import widen

# 192 · 4² and 47 MB per expert in bfloat16: the weight traffic per layer of a model with 200 billion parameters.
WIDE: Final = (3072, 2560)
WIDE_ON_CPU: Final = (768, 64)
SHAPES: Final = HERE / "shapes"
NAMES: Final = ("tiny6", "wide", *sorted(path.stem for path in SHAPES.glob("*.json")))


def model_folder(stage: Stage, name: str, on_cpu: bool = False) -> Path:
    """Creates the folder if it does not exist yet."""
    folder = stage.models / name
    if name == "tiny6":
        return folder if (folder / "model.safetensors").exists() else _unpack_tiny6(stage.project / "models" / "tiny6", folder)
    if name == "wide":
        return widen.write_folder(model_folder(stage, "tiny6"), folder, *(WIDE_ON_CPU if on_cpu else WIDE))
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((SHAPES / f"{name}.json").read_text())
    (folder / "config.json").write_text(json.dumps(small(config) if on_cpu else config, indent=1))
    return folder


def small(config: dict[str, Any]) -> dict[str, Any]:
    """The same structure at a size that a CPU runs, for dry runs."""
    layers = 2
    out = {**config, "num_hidden_layers": layers, "hidden_size": 128, "vocab_size": 512, "eos_token_id": 1, "moe_intermediate_size": 32}
    out |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64}
    out |= {key: 16 for key in ("num_experts", "num_local_experts") if key in config}
    if "layer_types" in config:
        out["layer_types"] = config["layer_types"][-layers:]
    out.pop("quantization_config", None)  # MXFP4 has no kernel for float32
    return out


def config_of(stage: Stage, name: str, on_cpu: bool = False) -> dict[str, Any]:
    """The text model's configuration."""
    config = json.loads((model_folder(stage, name, on_cpu) / "config.json").read_text())
    return dict(config.get("text_config", config))


def facts(stage: Stage, name: str, on_cpu: bool = False) -> dict[str, Any]:
    """`model` of a result file."""
    config = config_of(stage, name, on_cpu)
    hidden = config["hidden_size"]
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    experts = config.get("num_experts") or config["num_local_experts"]
    layers = config["num_hidden_layers"]
    quantized = config.get("quantization_config", {}).get("quant_method")
    out = {
        "name": name if name == "tiny6" else f"tiny6-{name}" if name == "wide" else name,
        "what": {"tiny6": "tiny6 as trained", "wide": "tiny6 widened: the same function, large experts"}.get(
            name, "shape with dummy weights"
        ),
        "layers": layers,
        "experts": experts,
        "topK": config.get("num_experts_per_tok") or config.get("top_k_experts") or config.get("experts_per_token"),
        "hidden": hidden,
        "expertWidth": width,
        "dtype": quantized or ("float32" if on_cpu else "bfloat16"),
        "weights": {"tiny6": "trained", "wide": "widened"}.get(name, "dummy"),
    }
    if quantized is None:
        out["bytesPerExpert"] = 3 * hidden * width * (4 if on_cpu else 2)
    return out


def _unpack_tiny6(packed: Path, folder: Path) -> Path:
    """In the repository the weights are gzipped as two planes: bytes at even offsets, then those at odd ones."""
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.copytree(packed, making, ignore=shutil.ignore_patterns("*.gz"))
    planes = gzip.decompress((packed / "model.safetensors.planes.gz").read_bytes())
    even = (len(planes) + 1) // 2
    weights = bytearray(len(planes))
    weights[0::2], weights[1::2] = planes[:even], planes[even:]
    (making / "model.safetensors").write_bytes(weights)
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)
    return folder
