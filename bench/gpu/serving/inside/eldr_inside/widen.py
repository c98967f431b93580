"""Makes tiny6 wide without changing its function: real (trained) routing, and experts as large as those of a
large model.

Every tensor is padded to a larger hidden size H and expert width N. The new dimensions of the residual stream
stay exactly 0, because embeddings, o_proj and down_proj are 0 there. RMSNorm divides by the mean over H instead
of h dimensions, so its weights are multiplied by sqrt(h / H) and its epsilon by h / H. With H = h · 4ⁿ both
factors are powers of two, so nothing is rounded. What meets only zeros is filled with noise, because a GPU may
run faster on zeros: weights of the new inputs, and the new rows of gate_proj, which a zero up_proj disables."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, Final

# Where a tensor's old values go, and what fills the rest: (pads rows, pads columns, fill).
_KINDS: Final = {
    "embed_tokens": ("", "hidden", "zeros"),
    "lm_head": ("", "hidden", "zeros"),
    "gate": ("", "hidden", "zeros"),
    "q_proj": ("", "hidden", "noise"),
    "k_proj": ("", "hidden", "noise"),
    "v_proj": ("", "hidden", "noise"),
    "o_proj": ("hidden", "", "zeros"),
    "gate_proj": ("width", "hidden", "noise"),
    "up_proj": ("width", "hidden", "noise, but not on old inputs"),
    "down_proj": ("hidden", "width", "noise, but not on old inputs"),
}
_NORMS: Final = ("input_layernorm", "post_attention_layernorm", "norm")
_UNCHANGED: Final = ("q_norm", "k_norm")


class Widener:
    """from_, to: (hidden, width)."""

    def __init__(self, from_: tuple[int, int], to: tuple[int, int], device: Any = "cpu", seed: int = 0) -> None:
        import torch

        if to[0] < from_[0] or to[1] < from_[1]:
            raise ValueError(f"cannot widen {from_} to {to}")
        self._torch, self._from, self._to, self._device = torch, from_, to, device
        self._norm_scale = math.sqrt(from_[0] / to[0])
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._noise: dict[Any, Any] = {}

    def __call__(self, name: str, tensor: Any) -> Any:
        kind = name.rsplit(".", 2)[-2]
        if kind in _UNCHANGED:
            return tensor.to(self._device)
        if kind in _NORMS:
            out = self._torch.zeros(self._to[0], dtype=tensor.dtype, device=self._device)
            out[: len(tensor)] = (tensor.to(self._device).float() * self._norm_scale).to(tensor.dtype)
            return out
        if kind not in _KINDS:
            raise ValueError(f"{name} is not a tensor of Qwen3-MoE")
        rows, columns, fill = _KINDS[kind]
        return self._padded(tensor.to(self._device), self._size(rows, tensor.shape[0]), self._size(columns, tensor.shape[1]), fill)

    def _size(self, pads: str, old: int) -> int:
        return {"": old, "hidden": self._to[0], "width": self._to[1]}[pads]

    def _padded(self, tensor: Any, rows: int, columns: int, fill: str) -> Any:
        if fill == "zeros":
            out = self._torch.zeros(rows, columns, dtype=tensor.dtype, device=self._device)
        else:
            out = self._noise_like(rows, columns, tensor.dtype).clone()
        if fill == "noise, but not on old inputs":
            out[tensor.shape[0] :, : tensor.shape[1]] = 0
        out[: tensor.shape[0], : tensor.shape[1]] = tensor
        return out

    def _noise_like(self, rows: int, columns: int, dtype: Any) -> Any:
        key = (rows, columns, dtype)
        if key not in self._noise:
            made = self._torch.empty(rows, columns, device=self._device, dtype=self._torch.float32)
            self._noise[key] = made.normal_(0, 0.02, generator=self._generator).to(dtype)
        return self._noise[key]


def wide_config(config: dict[str, Any], hidden: int, width: int) -> dict[str, Any]:
    return {
        **config,
        "hidden_size": hidden,
        "moe_intermediate_size": width,
        "rms_norm_eps": config["rms_norm_eps"] * config["hidden_size"] / hidden,
        "widened_from": {"hidden_size": config["hidden_size"], "moe_intermediate_size": config["moe_intermediate_size"]},
    }


def write_folder(source: Path, target: Path, hidden: int, width: int) -> Path:
    """A model folder for `--load-format wide`: the wide configuration and, as a link, the narrow weights."""
    target.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(wide_config(config, hidden, width), indent=1))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target / name)
    weights = target / "model.safetensors"
    if not weights.exists():
        weights.symlink_to((source / "model.safetensors").resolve())
    return target
