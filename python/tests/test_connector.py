"""The connector keeps serving after any failure. The imported parts of vLLM are fakes here; test/vllm tests
with the real one."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from eldr_vllm.messages import EMPTY_STEP, StepCounts, StepMeta
from eldr_vllm.metrics import Tally
from eldr_vllm.store import End
from eldr_vllm.worker import Worker

from . import fake_vllm
from .fake_vllm import MAX_MODEL_LEN, FullAttentionSpec, Role, SlidingWindowSpec, StateSpaceSpec, kv_cache_config, vllm_config
from .test_handoff import counted, output, request


def scheduler(monkeypatch: pytest.MonkeyPatch, config: Any = None, cache: Any = None, version: str = "0.32.0") -> Any:
    connector = fake_vllm.install(monkeypatch, version)
    return connector.EldrConnector(config or vllm_config(), Role.SCHEDULER, cache or kv_cache_config(StateSpaceSpec(), FullAttentionSpec()))


def finished(connector: Any, r: Any, status: str = "FINISHED_LENGTH_CAPPED") -> Any:
    r.status = SimpleNamespace(name=status)
    return connector.request_finished_all_groups(r, ([], []))


def run(connector: Any, r: Any, counts: Any) -> Any:
    """Runs a prompt of 10 tokens from arrival to end."""
    connector.on_new_request(r)
    assert connector.get_num_new_matched_tokens(r, 0) == (0, False)
    connector.update_state_after_alloc(r, SimpleNamespace(get_block_ids=lambda: ([], [7, 8, 9])), 0)
    meta = connector.build_connector_meta(output({"r": 10}, {"r": [7, 8, 9]}))
    assert isinstance(meta, StepMeta)
    delay, answer = finished(connector, r)
    assert delay is False
    connector.update_connector_output(SimpleNamespace(kv_connector_worker_meta=counts))
    return answer


def test_a_hand_off_uses_the_group_with_full_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = scheduler(monkeypatch)
    assert run(connector, request(), counted("r"))["eldr"]["covered"] == 10
    assert connector.requires_kv_delivery is False


@pytest.mark.parametrize(
    ("cache", "group"),
    [
        (kv_cache_config(SlidingWindowSpec(8), FullAttentionSpec(), FullAttentionSpec()), 1),
        (kv_cache_config(SlidingWindowSpec(MAX_MODEL_LEN), FullAttentionSpec()), 1),
        # A window as long as the longest request never frees a block.
        (kv_cache_config(StateSpaceSpec(), SlidingWindowSpec(8), SlidingWindowSpec(MAX_MODEL_LEN)), 2),
    ],
)
def test_groups_that_free_blocks_are_skipped(monkeypatch: pytest.MonkeyPatch, cache: Any, group: int) -> None:
    assert scheduler(monkeypatch, cache=cache)._hand_offs.group == group


def test_an_aborted_request_hands_off_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    connector, r = scheduler(monkeypatch), request()
    connector.on_new_request(r)
    assert finished(connector, r, "FINISHED_ABORTED") == (False, None)


@pytest.mark.parametrize(
    ("config", "cache", "version", "reason"),
    [
        (vllm_config(), kv_cache_config(StateSpaceSpec()), "0.32.0", "no KV group with full attention"),
        (vllm_config(), kv_cache_config(SlidingWindowSpec(MAX_MODEL_LEN - 1)), "0.32.0", "no KV group with full attention"),
        (vllm_config(decode_context_parallel_size=2), None, "0.32.0", "decode context parallelism"),
        (vllm_config(enable_dbo=True), None, "0.32.0", "dual-batch overlap"),
        (vllm_config(), None, "0.24.0", "older than 0.25"),
    ],
)
def test_unsupported_engines_serve_and_report_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, config: Any, cache: Any, version: str, reason: str
) -> None:
    with caplog.at_level(logging.WARNING, "vllm.eldr"):
        connector = scheduler(monkeypatch, config, cache, version)
    assert reason in caplog.text
    answer = run(connector, request(), None)
    assert list(answer["eldr"]) == ["off"]
    assert reason in answer["eldr"]["off"]


def test_an_exception_is_logged_once_and_disables_capture(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    connector = scheduler(monkeypatch)
    broken = SimpleNamespace(total_num_scheduled_tokens=3, num_scheduled_tokens={"x": 3})
    for _ in range(3):
        meta = connector.build_connector_meta(broken)
        assert (meta.tokens, meta.decode_batch, meta.ends) == (3, 0, {})
    assert caplog.text.count("capture is off from now on") == 1
    answer = run(connector, request(), None)
    assert answer["eldr"]["off"].startswith("build_connector_meta failed: AttributeError")


@pytest.mark.parametrize("name", ["follow", "found_locally", "admitted", "step", "finished", "received"])
def test_hand_offs_report_any_failure_in_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    def failing(*args: Any) -> None:
        raise KeyError("nothing")

    connector = scheduler(monkeypatch)
    monkeypatch.setattr(connector._hand_offs, name, failing)
    for _ in range(2):
        answer = run(connector, request(), counted("r"))
        assert list(answer["eldr"]) == ["off"]
        assert "failed: KeyError: 'nothing'" in answer["eldr"]["off"]
    assert caplog.text.count("capture is off from now on") == 1
    unwanted = request()
    unwanted.kv_transfer_params = None
    assert finished(connector, unwanted) == (False, None)
    assert finished(connector, request(), "FINISHED_ABORTED") == (False, None)


def test_an_untested_version_is_logged_at_the_start(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vllm.eldr"):
        scheduler(monkeypatch, version="0.31.2")
    assert "vLLM 0.31.2 was not run with this plugin" in caplog.text


def test_a_decode_worker_tracks_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = scheduler(monkeypatch, vllm_config("kv_consumer"))
    assert connector.build_connector_meta(output({"a": 1, "b": 1})).decode_batch == 2
    assert connector.build_connector_meta(output({})) is EMPTY_STEP
    assert finished(connector, request()) == (False, None)


class Failing:
    """A capture whose store fails."""

    def __init__(self) -> None:
        self.store = self
        self.off: str | None = None
        self.failures: list[str] = []

    def begin(self) -> None: ...

    def forget(self, blocks: list[int]) -> None: ...

    def copy(self, pairs: list[tuple[int, int]]) -> None: ...

    def fail(self, where: str, error: BaseException) -> None:
        self.off = self.off or f"{where} failed: {error}"
        self.failures.append(where)

    def finish(self, tokens: int) -> None:
        raise RuntimeError("no memory")

    def sums(self, ends: Any) -> Any:
        raise RuntimeError("no memory")


def test_a_failed_worker_reports_once_and_then_on_every_request_for_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_vllm.install(monkeypatch)
    connector = module.EldrConnector(vllm_config(), Role.WORKER, kv_cache_config(FullAttentionSpec()))
    capture: Any = Failing()
    connector._worker = Worker(0, [0], capture, None, None)
    connector.bind_connector_metadata(StepMeta(tokens=3))
    connector.wait_for_save()
    assert connector.build_connector_worker_meta() == StepCounts(off="storing a step's experts failed: no memory")
    connector.bind_connector_metadata(StepMeta(tokens=3))
    connector.wait_for_save()
    assert connector.build_connector_worker_meta() is None
    connector.bind_connector_metadata(StepMeta(tokens=3, ends={"r": End([0], 3)}))
    assert connector.build_connector_worker_meta() == StepCounts(off="storing a step's experts failed: no memory")
    assert capture.failures == ["storing a step's experts"]


def test_an_engine_without_parallel_state_is_served_without_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_vllm.install(monkeypatch)
    connector = module.EldrConnector(vllm_config(), Role.WORKER, kv_cache_config(FullAttentionSpec()))
    connector.register_kv_caches({})
    connector.bind_connector_metadata(StepMeta(tokens=1))
    counts = connector.build_connector_worker_meta()
    assert counts.off.startswith("ImportError")


def test_agrees_to_blocks_across_layers_beside_other_connectors(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_vllm.install(monkeypatch)
    group = sys.modules["vllm.distributed.kv_transfer"].group
    connector = module.EldrConnector(vllm_config(), Role.WORKER, kv_cache_config(FullAttentionSpec()))
    group["it"] = connector
    assert connector.prefer_cross_layer_blocks is False
    group["it"] = "MultiConnector"
    assert connector.prefer_cross_layer_blocks is True
    seen: list[Any] = []
    monkeypatch.setattr(connector, "register_kv_caches", seen.append)
    connector.register_cross_layers_kv_cache("tensor", object)
    assert seen == [{"all layers": "tensor"}]


def test_statistics_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_vllm.install(monkeypatch)
    one = {"steps": 1, "requests": 2, "active": {"0": 4}, "read": {"0": 5}, "once": {}}
    stats = module.EldrConnector.build_kv_connector_stats(dict(one))
    assert stats.aggregate(module.EldrConnector.build_kv_connector_stats(dict(one))).data["steps"] == 2
    assert stats.reduce()["mean active experts"] == 4
    assert module.EldrConnector.build_kv_connector_stats().is_empty()


def test_too_many_experts_for_the_store_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vllm_config()
    config.model_config.get_num_experts = lambda: 32767
    assert scheduler(monkeypatch, config)._hand_offs.off is None
    config.model_config.get_num_experts = lambda: 32768
    assert scheduler(monkeypatch, config)._hand_offs.off == "tiny: 32768 experts; the store holds ids of at most 32767"


def test_metrics_of_a_worker_are_reported_once_and_a_failure_turns_capture_off(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_vllm.install(monkeypatch, "0.32.0")
    connector = module.EldrConnector(vllm_config(), Role.WORKER, kv_cache_config(FullAttentionSpec()))
    assert connector.get_kv_connector_stats() is None
    failures: list[str] = []
    capture: Any = SimpleNamespace(off=None, store=None, fail=lambda where, error: failures.append(f"{where}: {error}"))
    tally = Tally([0])
    connector._worker = Worker(0, [0], capture, None, tally)
    assert connector.get_kv_connector_stats() is None
    tally.once("store_bytes", 100)
    assert connector.get_kv_connector_stats().data["once"] == {"store_bytes": 100}
    assert connector.get_kv_connector_stats() is None
    tally.add(1, None)  # a broken result of the device
    assert connector.get_kv_connector_stats() is None
    assert failures == ["_stats: 'NoneType' object has no attribute 'ready'"]
