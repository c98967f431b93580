"""Small models of several architectures with random weights, and the experts of each token according to `transformers` in float32,
captured by a hook on the expert module."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

VOCABULARY, WINDOW = 320, 64
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # the minimum of vLLM's CPU attention
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "num_experts_per_tok": 4,
}
_MLA: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64,
    "head_dim": 64,
    "v_head_dim": 32,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
}
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_oss": (
        "gpt_oss",
        {
            "num_hidden_layers": 4,
            "num_local_experts": 16,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "afmoe": (
        "afmoe",
        {
            "num_hidden_layers": 4,
            "num_dense_layers": 1,
            "moe_intermediate_size": 64,
            "num_experts": 16,
            "num_shared_experts": 1,
            "sliding_window": WINDOW,
            "global_attn_every_n_layers": 2,
            "score_func": "sigmoid",
            "route_norm": True,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    "lfm2_moe": (
        "lfm2_moe",
        {
            "hidden_size": 128,
            "num_hidden_layers": 4,
            "num_dense_layers": 1,
            "moe_intermediate_size": 64,
            "num_experts": 16,
            "layer_types": ["conv", "full_attention"] * 2,
        },
    ),
    "granitemoehybrid": (
        "granitemoehybrid",
        {
            "hidden_size": 128,
            "intermediate_size": 64,
            "shared_intermediate_size": 64,
            "num_hidden_layers": 4,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "layer_types": ["mamba", "attention"] * 2,
            "mamba_n_heads": 8,
            "mamba_d_head": 32,
            "mamba_n_groups": 1,
            "mamba_d_state": 16,
            "mamba_expand": 2,
        },
    ),
    "deepseek_v2": (
        "deepseek_v2",
        {
            **_MLA,
            "num_hidden_layers": 3,
            "n_routed_experts": 16,
            "n_shared_experts": 2,
            "q_lora_rank": None,
            "topk_method": "group_limited_greedy",
            "norm_topk_prob": False,
        },
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {
            **_MLA,
            "num_hidden_layers": 4,
            "n_routed_experts": 32,
            "n_shared_experts": 1,
            "q_lora_rank": 32,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
        },
    ),
    "qwen3_moe_288": (
        "qwen3_moe",
        {"num_hidden_layers": 3, "num_experts": 288, "num_experts_per_tok": 6, "moe_intermediate_size": 32, "norm_topk_prob": True},
    ),
    "mixtral_window": ("mixtral", {"num_hidden_layers": 3, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": WINDOW}),
    "mixtral_wide": ("mixtral", {"num_hidden_layers": 3, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 1024}),
}


@cache
def model_of(name: str) -> Any:
    kind, more = CONFIGURATIONS[name]
    torch.manual_seed(11)
    torch.set_num_threads(1)
    config = CONFIG_MAPPING[kind](**(_COMMON | more))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        # Large enough that every layer affects the next, and experts are chosen by clear margins.
        for parameter in (weight for weight in model.parameters() if weight.ndim > 1):
            parameter.normal_(0, 0.15)
        model.get_input_embeddings().weight.normal_(0, 1)
        for key, bias in model.named_buffers():
            if key.endswith("bias"):  # of a router; initially 0
                bias.normal_(0, 0.3)
    return model


@cache
def written(name: str, folder: Path) -> Path:
    """The model as a folder for vLLM. It has no tokenizer: prompts are ids."""
    path = folder / name
    model_of(name).save_pretrained(path)
    return path


@cache
def experts_of(name: str, tokens: tuple[int, ...]) -> Any:
    """[tokens, MoE layers, top_k]"""
    model = model_of(name)
    seen: list[Any] = []

    def look(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        (ids,) = [a for a in (*arguments, *keywords.values()) if isinstance(a, torch.Tensor) and not a.is_floating_point()]
        seen.append(ids.reshape(len(tokens), -1).numpy().copy())

    handles = [
        module.register_forward_pre_hook(look, with_kwargs=True)
        for path, module in model.named_modules()
        if path.endswith(".experts") and "shared" not in path
    ]
    with torch.no_grad():
        model(torch.tensor([tokens]), use_cache=False)
    for handle in handles:
        handle.remove()
    return np.stack(seen, axis=1)


def experts_in(name: str) -> int:
    config = model_of(name).config
    return int(next(getattr(config, key) for key in ("num_local_experts", "n_routed_experts", "num_experts") if hasattr(config, key)))
