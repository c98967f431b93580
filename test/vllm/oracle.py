"""The same model in transformers, float32, eager: the experts of each token, computed without vLLM."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import numpy as np
import torch
from servers import MODEL
from transformers import AutoModelForCausalLM, AutoTokenizer


@cache
def _loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    return model, AutoTokenizer.from_pretrained(MODEL)


def tokens_of(text: str) -> list[int]:
    return list(_loaded()[1](text, add_special_tokens=False).input_ids)


@cache
def experts_of(tokens: tuple[int, ...]) -> Any:
    """[tokens, layers, top_k]"""
    model, _ = _loaded()
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), output_router_logits=True).router_logits
    k = model.config.num_experts_per_tok
    return np.stack([layer.reshape(len(tokens), -1).topk(k).indices.numpy() for layer in logits], axis=1)


def counts_of(tokens: tuple[int, ...], half_life: float | None = None) -> Any:
    """[layers, experts]; with a half-life in tokens, the recent counts."""
    ids = experts_of(tokens)
    out = np.zeros((ids.shape[1], _loaded()[0].config.num_experts))
    for position, rows in enumerate(ids):
        weight = 1.0 if half_life is None else 2.0 ** ((position + 1 - len(tokens)) / half_life)
        for layer, row in enumerate(rows):
            out[layer, row] += weight
    return out


def u16(text: str, layers: int) -> Any:
    return np.frombuffer(base64.b64decode(text), "<u2").astype(int).reshape(layers, -1)


SHARED = "You are a helpful assistant. Answer briefly and cite the law where it applies. " * 12
TEXTS = [
    "x",
    "The quick brown fox jumps over the lazy dog. " * 9,
    "def sort(values):\n    return sorted(values)\n\n" * 25,
    SHARED + "What is the capital of France?",
    SHARED + "Write a sorting function in C.",
    SHARED + "What is the capital of France?",
    "Der Bundestag wird auf vier Jahre gewählt. " * 14,
    "A patient of 54 years has had a cough for three weeks. " * 40,
]


@cache
def prompts() -> tuple[tuple[int, ...], ...]:
    """1 to 700 tokens: texts with shared prefixes and a repeat, and lengths of whole blocks and one more."""
    texts = [tuple(tokens_of(text))[:700] for text in TEXTS]
    long = texts[-1] * 2
    return (*texts, long[:128], long[:128], long[:256], long[:257], long[3:131], long[3:700])
