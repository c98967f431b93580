"""The widened model computes the same function: logits and experts of a forward pass, in float32, at small widths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from eldr_inside import widen
from lab.models import model_folder
from staging.paths import Stage

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture(scope="module")
def tiny6(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(Stage(tmp_path_factory.mktemp("stage")), "tiny6")


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def written(source: Path, folder: Path, hidden: int, width: int) -> Path:
    widen.write_folder(source, folder, hidden, width)
    config = json.loads((source / "config.json").read_text())
    widener = widen.Widener((config["hidden_size"], config["moe_intermediate_size"]), (hidden, width))
    tensors = safetensors.load_file(source / "model.safetensors")
    (folder / "model.safetensors").unlink()
    safetensors.save_file(
        {name: widener(name, tensor).contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


def test_logits_and_experts_stay(tiny6: Path, tmp_path: Path) -> None:
    narrow, wide = loaded(tiny6), loaded(written(tiny6, tmp_path / "wide", 768, 64))
    assert (wide.config.hidden_size, wide.config.moe_intermediate_size) == (768, 64)
    rng = torch.Generator().manual_seed(1)
    prompt = torch.randint(4, 8000, (2, 40), generator=rng)
    with torch.no_grad():
        one, other = (model(prompt, output_router_logits=True) for model in (narrow, wide))
    assert (one.logits - other.logits).abs().max() < 1e-3
    for a, b in zip(one.router_logits, other.router_logits, strict=True):
        assert (a - b).abs().max() < 1e-3
        # Choices may differ only where two experts are as good as equal.
        top_a, top_b = a.topk(8), b.topk(8)
        same = top_a.indices.sort(dim=-1).values == top_b.indices.sort(dim=-1).values
        margin = a.topk(9).values[..., 7] - a.topk(9).values[..., 8]
        assert (same.all(dim=-1) | (margin < 1e-3)).all()


def test_new_weights_are_not_zeros(tiny6: Path) -> None:
    widener = widen.Widener((192, 32), (768, 64))
    up = widener("model.layers.0.mlp.experts.0.up_proj.weight", torch.ones(32, 192))
    assert up.shape == (64, 768)
    assert (up[32:, :192] == 0).all()
    assert (up[32:, 192:] != 0).all()


def test_a_tensor_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="not a tensor of Qwen3-MoE"):
        widen.Widener((192, 32), (768, 64))("model.layers.0.mixer.in_proj.weight", torch.ones(2, 2))


def test_narrowing_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot widen"):
        widen.Widener((192, 32), (96, 32))
