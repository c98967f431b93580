"""Load files and prompts."""

from __future__ import annotations

import random
from collections import Counter

from lab import prompts

ROWS = [{"id": f"r{index}", "domain": "code", "prompt": f"text {index}"} for index in range(10)]


def test_a_load_repeats_all_prompts_equally_often() -> None:
    rows = prompts.load_rows(ROWS, 40, 1, (5, 9))
    assert set(Counter(row["id"] for row in rows).values()) == {4}
    assert {row["max_tokens"] for row in rows} <= set(range(5, 10))


def test_the_same_seed_gives_the_same_load_and_another_seed_another() -> None:
    assert prompts.load_rows(ROWS, 25, 1, (5, 9)) == prompts.load_rows(ROWS, 25, 1, (5, 9))
    assert prompts.load_rows(ROWS, 25, 1, (5, 9)) != prompts.load_rows(ROWS, 25, 2, (5, 9))


def test_random_prompts_have_their_length_and_share_no_prefix() -> None:
    pool = list(range(100))
    rng = random.Random(1)
    made = [prompts.random_prompt(pool, length, rng) for length in (1, 64, 350)]
    assert [len(prompt) for prompt in made] == [1, 64, 350]
    assert len({prompts.random_prompt(pool, 20, rng)[0] for _ in range(50)}) > 45
