"""Counts and decode ids equal a forward pass in every engine mode, and each mode did occur: two steps in flight, prefix hits of whole
prompts, eviction, preemption, many prompts that end in one step, large blocks of one token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engines import MODEL, SMALL, Result, Run, Tokens, check, run_engines, summed
from oracle import experts_of, prompts

EXPERTS, HALF_LIFE = 64, 64
SETTINGS = {"half_life": HALF_LIFE}
ONE_TOKEN: Tokens = (300,) * 900


def _starting_apart(tokens: int) -> list[Tokens]:
    """No shared prefixes, so none shares a block."""
    long = prompts()[-1]
    return [(number + 5, *long[number : number + tokens - 1]) for number in range(8)]


LONG = prompts()[-1]
FULL_HITS: list[list[Tokens]] = [[LONG[:128]], [LONG[:128]], [LONG[:128], LONG[:128]], [LONG[:129]], [LONG[:160]], [LONG[:160]]]
# The model drafts for itself, so most drafts are accepted. Its layers have the same ids as those of the model.
DRAFT = {"method": "draft_model", "model": str(MODEL), "num_speculative_tokens": 3}
CROWD = [list(prompts()), _starting_apart(150)]
RUNS: dict[str, Run] = {
    "in step": Run(CROWD, 100, settings=SETTINGS, arguments=SMALL),
    "two in flight": Run(CROWD, 100, settings=SETTINGS, arguments=SMALL, changes={"asynchronous": 0}),
    "full hits": Run(FULL_HITS, settings=SETTINGS, arguments=SMALL),
    "draft model": Run([[LONG[:90], LONG[:160]], [LONG[:160]]], 24, settings=SETTINGS, arguments=SMALL | {"speculative_config": DRAFT}),
    "eight ends": Run([_starting_apart(60)] * 2, settings=SETTINGS, arguments=SMALL | {"max_num_batched_tokens": 512}),
    **{
        f"blocks of {size}": Run([[ONE_TOKEN], [ONE_TOKEN[:size], ONE_TOKEN]], 2, settings=SETTINGS, arguments={"block_size": size})
        for size in (128, 256, 512)
    },
}


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Result]:
    return run_engines(folder, "modes", RUNS)


@pytest.mark.parametrize("name", list(RUNS))
def test_counts_equal_a_forward_pass(results: dict[str, Result], name: str) -> None:
    assert "capture is off" not in results[name].log
    for answer in results[name].answers:
        check(answer, experts_of, EXPERTS, HALF_LIFE)


def test_two_steps_were_in_flight(results: dict[str, Result]) -> None:
    seen: list[Any] = [(results[name].seen["scheduler"], results[name].seen["in_flight"]) for name in ("in step", "two in flight")]
    assert seen == [("Scheduler", 1), ("AsyncScheduler", 2)]


@pytest.mark.parametrize("name", ["in step", "two in flight"])
def test_requests_were_preempted_and_blocks_reused(results: dict[str, Result], name: str) -> None:
    seen = results[name].seen
    assert seen["preempted"] > 0
    assert seen["allocated"] > 2 * SMALL["num_gpu_blocks_override"]
    assert seen["ends"] > 1


def test_the_last_block_of_a_fully_cached_prompt_is_recomputed(results: dict[str, Result]) -> None:
    cached = [[answer.cached for answer in batch] for batch in results["full hits"].batches]
    assert cached == [[0], [96], [96, 96], [128], [128], [128]]


def test_drafts_are_not_counted_with_a_prompt(results: dict[str, Result]) -> None:
    seen = results["draft model"].seen
    assert seen["drafted"] >= seen["accepted"] > 0
    assert {answer.sent["decode_off"] for answer in results["draft model"].answers} == {"decode ids are not kept with speculative decoding"}


def test_eight_prompts_ended_in_one_step(results: dict[str, Result]) -> None:
    assert results["eight ends"].seen["ends"] == 8


@pytest.mark.parametrize("size", [128, 256, 512])
def test_one_expert_took_every_token_of_a_block(results: dict[str, Result], size: int) -> None:
    assert f" blocks of {size}:" in results[f"blocks of {size}"].log
    ids = experts_of(ONE_TOKEN)
    full = [summed(ids[first : first + size], EXPERTS, None).max() for first in range(0, len(ids) - size + 1, size)]
    assert max(full) == size
