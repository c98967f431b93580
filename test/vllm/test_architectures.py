"""Counts, recent counts and decode ids of small random models equal a `transformers` forward pass for all kinds of KV: sliding windows,
state space models and short convolutions combined with full attention, latent attention, more than 256 experts."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from architectures import VOCABULARY, experts_in, experts_of, written
from engines import SMALL, Result, Run, Tokens, check, run_engines

HALF_LIFE = 64
# With the CPU build's own rotary kernel these differ from transformers, with and without the plugin; with torch's they agree.
ROTARY_OF_TORCH = {"compilation_config": {"custom_ops": ["-rotary_embedding"]}}
# Its latent attention supports blocks of 16 without chunks and prefix caching: 64 blocks would not hold the longest prompt. Named, because
# on Intel processors with AMX vLLM would take its AMX kernel instead, which supports bfloat16 only.
LATENT = ROTARY_OF_TORCH | {"num_gpu_blocks_override": 80, "max_num_batched_tokens": 1024, "attention_backend": "CPU_MLA"}
FULL, SLIDING, STATE, LATENT_KV = "FullAttentionSpec", "SlidingWindowSpec", "MambaSpec", "MLAAttentionSpec"
MODELS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "windows beside full attention, GPT-OSS": ("gpt_oss", {}, {FULL, SLIDING}),
    "windows beside full attention, AFMoE, a dense and a shared layer": ("afmoe", {}, {FULL, SLIDING}),
    "the same in one group, hybrid groups off": ("gpt_oss", {"disable_hybrid_kv_cache_manager": True}, {FULL}),
    "a window as long as the longest prompt": ("mixtral_wide", {}, {SLIDING}),
    # Always blocks of 64: fewer of them hold as much.
    "state spaces beside full attention": ("granitemoehybrid", {"num_gpu_blocks_override": 48}, {FULL, STATE}),
    "short convolutions beside full attention": ("lfm2_moe", ROTARY_OF_TORCH, {FULL, STATE}),
    "latent attention, grouped top-k, DeepSeek-V2": ("deepseek_v2", LATENT, {LATENT_KV}),
    "latent attention, grouped top-k with a bias, DeepSeek-V3": ("deepseek_v3", LATENT, {LATENT_KV}),
    "288 experts": ("qwen3_moe_288", {}, {FULL}),
}
ALONE = "a window alone"


def _prompts() -> tuple[Tokens, ...]:
    """Shared prefixes, a repeat, lengths of whole blocks and one more, lengths of several windows; in total more than the blocks hold."""
    rng = random.Random(3)
    shared, other, *more = (tuple(rng.randrange(3, VOCABULARY) for _ in range(length)) for length in (150, 300, 400, 450, 500))
    return (
        (7,),
        shared + (9,) * 20,
        shared + (10,) * 90,
        shared + (9,) * 20,
        shared[:128],
        shared[:128],
        (*shared[:128], 5),
        other,
        *more,
        (*other, 6),
    )


PROMPTS = _prompts()


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Result]:
    batches = [*([prompt] for prompt in PROMPTS), PROMPTS]
    settings = {"half_life": HALF_LIFE}
    runs = {
        name: Run(batches, model=written(model, folder), settings=settings, arguments=SMALL | arguments)
        for name, (model, arguments, _) in MODELS.items()
    }
    runs[ALONE] = Run([PROMPTS], model=written("mixtral_window", folder), settings=settings, arguments=SMALL)
    return run_engines(folder, "architectures", runs)


@pytest.mark.parametrize("name", list(MODELS))
def test_counts_equal_a_forward_pass(results: dict[str, Result], name: str) -> None:
    model, arguments, kinds = MODELS[name]
    result = results[name]
    assert {kind for kind, _ in result.seen["groups"]} == kinds
    assert "capture is off" not in result.log
    for answer in result.answers:
        check(answer, partial(experts_of, model), experts_in(model), HALF_LIFE)
    # The cases did occur: cache hits, more blocks allocated than exist, prompts that ended in one step.
    if kinds != {LATENT_KV}:
        assert sum(answer.cached for answer in result.answers) > 500
    assert result.seen["allocated"] > (SMALL | arguments)["num_gpu_blocks_override"]
    assert result.seen["ends"] > 1


def test_ids_beyond_a_byte_use_two_bytes(results: dict[str, Result]) -> None:
    answers = results["288 experts"].answers
    assert {answer.sent["decode"]["dtype"] for answer in answers} == {"u16"}
    assert max(answer.decode.max() for answer in answers) > 255


def test_windows_change_what_is_counted() -> None:
    """Shows that the comparison above detects an ignored window."""
    prompt = PROMPTS[7]
    narrow, wide = (experts_of(name, prompt) for name in ("mixtral_window", "mixtral_wide"))
    assert narrow[:64].tolist() == wide[:64].tolist()
    assert narrow[64:].tolist() != wide[64:].tolist()


def test_a_model_of_windows_alone_is_served_without_counts(results: dict[str, Result]) -> None:
    """Its blocks are reallocated while its prompt is still computed."""
    result = results[ALONE]
    assert {kind for kind, _ in result.seen["groups"]} == {SLIDING}
    assert [len(answer.tokens) for answer in result.answers] == [9] * len(PROMPTS)
    assert {answer.sent["off"] for answer in result.answers} == {"no KV group with full attention (a model of sliding windows alone)"}
    assert result.log.count("nothing is captured here, requests are served without counts: no KV group with full attention") == 1
