from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eldr_vllm import timings
from eldr_vllm.messages import Part, StepCounts, StepMeta
from eldr_vllm.store import End

from . import fake_vllm
from .fake_vllm import FullAttentionSpec, Role, kv_cache_config, vllm_config
from .test_handoff import output, request


def test_only_steps_with_hand_offs_are_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock) * 1e-6)
    owner = SimpleNamespace(sum=lambda: 7)
    measured = timings.Timings()
    measured.watch(owner, "sum")
    for ends in (0, 20, 0, 20, 20):
        assert owner.sum() == 7
        owner.sum()
        measured.step_ended(ends)
    assert caplog.text.count("host time of 60 hand-offs") == 1
    assert "sum 0 (0)" in caplog.text  # 2 µs for 20 hand-offs


@pytest.mark.parametrize("role", [Role.SCHEDULER, Role.WORKER])
def test_a_connector_with_timings_works_as_without(role: Role, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    module = fake_vllm.install(monkeypatch)
    monkeypatch.setattr(timings, "_HAND_OFFS", 1)
    connector: Any = module.EldrConnector(vllm_config(extra={"timings": True}), role, kv_cache_config(FullAttentionSpec()))
    if role == Role.SCHEDULER:
        asked = request()
        asked.status = SimpleNamespace(name="FINISHED_LENGTH_CAPPED")
        connector.on_new_request(asked)
        connector.build_connector_meta(output({asked.request_id: 4}))
        connector.request_finished(asked, ())
        counts = StepCounts({0: Part([0], [asked.request_id])})
        connector.update_connector_output(SimpleNamespace(kv_connector_worker_meta=counts))
        assert "build_connector_meta" in caplog.text
        assert "fill" in caplog.text
    else:
        connector.bind_connector_metadata(StepMeta(tokens=4, ends={"r": End([0], 4)}))
        connector.wait_for_save()
        connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        assert "build_connector_worker_meta" in caplog.text
