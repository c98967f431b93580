"""The scheduler's half alone: order of calls, results when something is missing, and lifetime of its state."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eldr_vllm.handoff import OFF_LATE, HandOffs
from eldr_vllm.messages import EMPTY_STEP, Later, Part, StepCounts, StepMeta
from eldr_vllm.store import Sums

KV = {"do_remote_decode": True}


def request(rid: str = "r", prompt: int = 10, params: Any = None) -> Any:
    return SimpleNamespace(
        request_id=rid, num_prompt_tokens=prompt, num_computed_tokens=0, kv_transfer_params=KV if params is None else params
    )


def output(
    scheduled: dict[str, int],
    new: dict[str, list[int]] | None = None,
    cached: dict[str, list[int] | None] | None = None,
    computed: int = 0,
    resumed: bool = False,
) -> Any:
    """computed: tokens of every request before the step."""
    return SimpleNamespace(
        total_num_scheduled_tokens=sum(scheduled.values()),
        num_scheduled_tokens=scheduled,
        scheduled_new_reqs=[
            SimpleNamespace(req_id=rid, block_ids=([], blocks), num_computed_tokens=computed) for rid, blocks in (new or {}).items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached or {}),
            new_block_ids=[None if blocks is None else ([], blocks) for blocks in (cached or {}).values()],
            num_computed_tokens=[computed] * len(cached or {}),
            resumed_req_ids=set(cached or {}) if resumed else set(),
        ),
    )


def counted(*rids: str, layers: tuple[int, ...] = (0, 1), covered: int = 10, stage: int = 0) -> StepCounts:
    sums = Sums(np.full((len(rids), len(layers), 4), 5), np.full(len(rids), covered))
    return StepCounts({stage: Part(list(layers), list(rids), Later(lambda: sums))})


def made(**more: Any) -> HandOffs:
    return HandOffs(group=1, block_size=4, experts=4, top_k=2, **more)


def prefilled(hand_offs: HandOffs, r: Any) -> StepMeta:
    hand_offs.follow(r)
    hand_offs.found_locally(r.request_id, 0)
    hand_offs.admitted(r, [7, 8, 9])
    return hand_offs.step(output({r.request_id: r.num_prompt_tokens}, {r.request_id: [7, 8, 9]}))


def test_the_dictionary_is_filled_after_it_was_returned() -> None:
    hand_offs, r = made(), request()
    meta = prefilled(hand_offs, r)
    assert meta.ends["r"].blocks == [7, 8, 9]
    answer = hand_offs.finished(r, aborted=False)
    assert answer == {"eldr": {}}
    hand_offs.received(counted("r"))
    assert answer is not None
    assert (answer["eldr"]["v"], answer["eldr"]["layers"], answer["eldr"]["covered"]) == (1, 2, 10)


def test_counts_received_before_the_request_finished_are_kept() -> None:
    hand_offs, r = made(), request()
    prefilled(hand_offs, r)
    hand_offs.received(counted("r"))
    hand_offs.received(None)
    answer = hand_offs.finished(r, aborted=False)
    assert answer is not None
    assert answer["eldr"]["counts"]


def test_an_aborted_request_leaves_nothing_behind() -> None:
    hand_offs, r = made(), request()
    prefilled(hand_offs, r)
    assert hand_offs.finished(r, aborted=True) is None
    hand_offs.received(counted("r"))
    assert not hand_offs._followed
    assert not hand_offs._waiting


def test_a_request_that_wants_no_counts_is_not_tracked() -> None:
    hand_offs, r = made(), request(params={"do_remote_prefill": True})
    meta = prefilled(hand_offs, r)
    assert not meta.ends
    assert hand_offs.finished(r, aborted=False) is None


@pytest.mark.parametrize("params", [None, [], "x", {"eldr": 1}, {"eldr": {"record": "all"}}])
def test_parameters_of_any_type_are_accepted(params: Any) -> None:
    hand_offs = made()
    hand_offs.follow(SimpleNamespace(request_id="r", kv_transfer_params=params))
    assert not hand_offs._followed


def test_many_requests_end_in_one_step() -> None:
    hand_offs = made()
    requests = [request(f"r{n}", 4) for n in range(5)]
    for n, r in enumerate(requests):
        hand_offs.follow(r)
        hand_offs.admitted(r, [n + 1])
    meta = hand_offs.step(output({r.request_id: 4 for r in requests}, {f"r{n}": [n + 1] for n in range(5)}))
    assert [end.blocks for end in meta.ends.values()] == [[1], [2], [3], [4], [5]]
    answers = [hand_offs.finished(r, aborted=False) for r in requests]
    hand_offs.received(counted(*meta.ends, covered=4))
    assert all(answer is not None and answer["eldr"]["covered"] == 4 for answer in answers)


def test_chunks_end_once_and_with_all_blocks() -> None:
    hand_offs, r = made(), request(prompt=10)
    hand_offs.follow(r)
    hand_offs.admitted(r, [7])
    assert not hand_offs.step(output({"r": 4}, {"r": [7]})).ends
    r.num_computed_tokens = 4
    meta = hand_offs.step(output({"r": 6}, cached={"r": [3, 5]}))
    assert meta.ends["r"].blocks == [7, 3, 5]
    r.num_computed_tokens = 10
    assert not hand_offs.step(output({"r": 1}, cached={"r": None})).ends


def test_nothing_is_allocated_for_an_empty_step() -> None:
    hand_offs = made()
    hand_offs.follow(request())
    assert hand_offs.step(output({})) is EMPTY_STEP


@pytest.mark.parametrize("params", [KV, {}])
def test_blocks_that_are_computed_here_need_not_be_forgotten(params: Any) -> None:
    hand_offs, r = made(), request(params=params)
    hand_offs.found_locally("r", 4)
    hand_offs.admitted(r, [7, 8, 9])
    assert hand_offs.step(output({"r": 4}, {"r": [7, 8, 9]}, computed=4)).unknown == []
    assert hand_offs.step(output({"r": 2}, cached={"r": [3]}, computed=8)).unknown == []
    hand_offs.found_locally("r", 0)
    hand_offs.admitted(r, [5, 6])
    assert hand_offs.step(output({"r": 8}, cached={"r": [5, 6]}, resumed=True)).unknown == []


@pytest.mark.parametrize("params", [KV, {}])
def test_blocks_that_are_loaded_are_unknown_as_soon_as_they_are_allocated(params: Any) -> None:
    hand_offs, r = made(), request(params=params)
    hand_offs.found_locally("r", 4)
    hand_offs.admitted(r, [7, 8, 9])
    assert hand_offs.step(output({})).unknown == [8, 9]
    assert hand_offs.step(output({})) is EMPTY_STEP
    hand_offs.admitted(r, [7, 8, 9, 2])
    assert hand_offs.step(output({"r": 2}, {"r": [7, 8, 9, 2]}, computed=12)).unknown == [2]


def test_blocks_of_a_running_request_are_not_new_when_it_is_admitted_again() -> None:
    hand_offs, r = made(), request()
    hand_offs.found_locally("r", 0)
    hand_offs.admitted(r, [7])
    hand_offs.step(output({"r": 4}, {"r": [7]}))
    hand_offs.step(output({"r": 4}, cached={"r": [8]}, computed=4))
    hand_offs.admitted(r, [7, 8, 9])
    assert hand_offs._new == {"r": [9]}


def test_the_copy_of_a_block_that_a_prefix_hit_ends_in_is_made_after_it_is_forgotten() -> None:
    """vLLM reports hits in whole blocks, and computes from within one."""
    hand_offs, r = made(), request(prompt=8)
    hand_offs.found_locally("r", 0)
    hand_offs.admitted(r, [7, 8])
    out = output({"r": 5}, {"r": [7, 8]}, computed=3)
    out.kv_cache_block_copies = [SimpleNamespace(src_block_id=5, dst_block_id=7)]
    meta = hand_offs.step(out)
    assert (meta.unknown, meta.copies) == ([7, 8], [(5, 7)])
    fields = list(StepMeta.__dataclass_fields__)
    assert fields.index("unknown") < fields.index("copies")


@pytest.mark.parametrize("resumed", [False, True])
def test_blocks_that_are_loaded_in_the_step_are_unknown_before_it(resumed: bool) -> None:
    hand_offs, r = made(), request()
    hand_offs.found_locally("r", 4)
    hand_offs.admitted(r, [7, 8, 9])
    blocks = {"r": [7, 8, 9]}
    out = output({"r": 2}, cached=dict(blocks), computed=8, resumed=True) if resumed else output({"r": 2}, blocks, computed=8)
    assert hand_offs.step(out).unknown == [8, 9]


def test_missing_counts_are_reported() -> None:
    hand_offs, r = made(), request()
    prefilled(hand_offs, r)
    answer = hand_offs.finished(r, aborted=False)
    hand_offs.received(None)
    assert answer == {"eldr": {"off": OFF_LATE}}


def test_every_later_hand_off_reports_a_disabled_worker() -> None:
    hand_offs = made()
    told: list[str] = []
    hand_offs.on_off = told.append
    for rid in ("a", "b"):
        r = request(rid)
        prefilled(hand_offs, r)
        answer = hand_offs.finished(r, aborted=False)
        hand_offs.received(StepCounts(off="kernel X routes by itself"))
        assert answer == {"eldr": {"off": "kernel X routes by itself"}}
    assert told == ["kernel X routes by itself"]


def test_pipeline_stages_are_joined_in_the_order_of_their_layers() -> None:
    hand_offs, r = made(stages=3), request()
    prefilled(hand_offs, r)
    answer = hand_offs.finished(r, aborted=False)
    late = counted("r", layers=(5,), stage=2).aggregate(counted("r", layers=(1, 3), stage=1)).aggregate(StepCounts({0: Part([], ["r"])}))
    hand_offs.received(pickle.loads(pickle.dumps(late)))
    assert answer is not None
    assert (answer["eldr"]["layers"], answer["eldr"]["covered"]) == (3, 10)


def test_a_missing_stage_is_reported() -> None:
    hand_offs, r = made(stages=2), request()
    prefilled(hand_offs, r)
    answer = hand_offs.finished(r, aborted=False)
    hand_offs.received(counted("r"))
    assert answer == {"eldr": {"off": "1 of 2 pipeline stages reported"}}


def test_a_decode_step_has_one_token_per_request() -> None:
    hand_offs = made()
    assert hand_offs.step(output({"a": 1, "b": 1}, cached={"a": None, "b": None})).decode_batch == 2
    assert hand_offs.step(output({"a": 1, "b": 2}, cached={"a": None, "b": None})).decode_batch == 0


def test_drafts_belong_to_a_decode_step() -> None:
    hand_offs, out = made(), output({"a": 4, "b": 2}, cached={"a": None, "b": None})
    out.scheduled_spec_decode_tokens = {"a": [7, 7, 7], "b": [-1]}
    assert hand_offs.step(out).decode_batch == 2
    out.scheduled_spec_decode_tokens = {"a": [7, 7, 7]}
    assert hand_offs.step(out).decode_batch == 0


def test_a_calibration_request_gets_a_slot_for_each_generated_token() -> None:
    hand_offs, r = made(), request(params={"eldr": {"record": "decode"}})
    assert not prefilled(hand_offs, r).records
    r.num_computed_tokens = 10
    assert hand_offs.step(output({"r": 1}, cached={"r": None})).records == {"r": [(10, 9 * 4 + 2)]}
    r.num_computed_tokens = 12
    assert hand_offs.step(output({"r": 1}, cached={"r": [2]})).records == {"r": [(12, 2 * 4)]}
