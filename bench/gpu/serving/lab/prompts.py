"""Prompts, their tokens, and load files for the load client."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from staging.paths import Stage

Row = dict[str, Any]


def rows_of(stage: Stage, name: str) -> list[Row]:
    """name: calibration or held-out."""
    return [json.loads(line) for line in (stage.prompts / f"{name}.jsonl").read_text().splitlines()]


def load_rows(rows: list[Row], count: int, seed: int, tokens: tuple[int, int]) -> list[Row]:
    """The prompts again and again, in a new order each time. Output lengths differ, so that requests do not end
    together."""
    rng = random.Random(seed)
    out: list[Row] = []
    while len(out) < count:
        out += [{"id": row["id"], "prompt": row["prompt"], "max_tokens": rng.randint(*tokens)} for row in rng.sample(rows, len(rows))]
    return out[:count]


def write_load(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@cache
def tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def tokens_of(folder: Path, text: str) -> list[int]:
    return list(tokenizer(folder).encode(text, add_special_tokens=False).ids)


def token_pool(stage: Stage, folder: Path) -> list[int]:
    return [token for row in rows_of(stage, "held-out") for token in tokens_of(folder, row["prompt"])]


def random_prompt(pool: list[int], length: int, rng: random.Random) -> list[int]:
    """Text from a random place; its first token is random, so that no prompt shares a prefix with another."""
    at = rng.randrange(len(pool))
    words = (pool[at:] + pool * (1 + length // len(pool)))[:length]
    return [rng.randrange(4, 8000), *words[1:]]


_SHARED = "You are a helpful assistant. Answer briefly and cite the law where it applies. " * 12
_TEXTS = (
    "x",
    "The quick brown fox jumps over the lazy dog. " * 9,
    "def sort(values):\n    return sorted(values)\n\n" * 25,
    _SHARED + "What is the capital of France?",
    _SHARED + "Write a sorting function in C.",
    _SHARED + "What is the capital of France?",
    "Der Bundestag wird auf vier Jahre gewählt. " * 14,
    "A patient of 54 years has had a cough for three weeks. " * 40,
)


def capture_prompts(folder: Path) -> list[list[int]]:
    """14 prompts of 1 to 697 tokens: shared prefixes, repetitions, exact multiples of blocks."""
    texts = [tokens_of(folder, text)[:700] for text in _TEXTS]
    long = texts[-1] * 2
    return [*texts, long[:128], long[:128], long[:256], long[:257], long[3:131], long[3:700]]
