from __future__ import annotations

import json
from typing import Any

import numpy as np

from eldr_vllm.metrics import Gauges, Tally, joined, summary


class Fetched:
    def __init__(self, active: list[int], ready: bool = True) -> None:
        self.values, self.is_ready = [number for value in active for number in (value, value + 1)], ready

    def ready(self) -> bool:
        return self.is_ready

    def array(self) -> Any:
        return np.array(self.values)


def test_sums_are_reported_once_and_as_plain_data() -> None:
    tally = Tally([3, 7])
    assert tally.is_empty
    assert tally.take() is None
    tally.once("store_bytes", 100)
    tally.add(2, Fetched([5, 6]))
    tally.add(4, Fetched([7, 8]))
    data = tally.take()
    active, read = {"3": 12, "7": 14}, {"3": 14, "7": 16}
    assert data == {"steps": 2, "requests": 6, "active": active, "read": read, "once": {"store_bytes": 100}}
    assert json.loads(json.dumps(data)) == data
    assert tally.take() is None


def test_steps_not_finished_by_the_device_go_into_the_next_report() -> None:
    tally = Tally([0])
    late = Fetched([9], ready=False)
    tally.add(1, Fetched([4]))
    tally.add(1, late)
    assert (tally.take() or {})["active"] == {"0": 4}
    assert tally.take() is None
    assert not tally.is_empty
    late.is_ready = True
    assert (tally.take() or {})["active"] == {"0": 9}
    assert tally.is_empty


def test_a_lagging_device_drops_old_steps_and_does_not_grow_memory() -> None:
    tally = Tally([0])
    for _ in range(1000):
        tally.add(1, Fetched([1], ready=False))
    assert len(tally._pending) == 64


def test_every_nth_step() -> None:
    tally = Tally([0], every=3)
    assert [tally.is_due() for _ in range(6)] == [False, False, True] * 2


def data(steps: int, requests: int, active: dict[str, int], **once: int) -> dict[str, Any]:
    read = {layer: 2 * total for layer, total in active.items()}
    return {"steps": steps, "requests": requests, "active": active, "read": read, "once": once}


def test_reports_over_time_add_up_and_stages_are_joined() -> None:
    assert joined({}, data(1, 2, {"0": 3})) == joined(data(1, 2, {"0": 3}), {}) == data(1, 2, {"0": 3})
    after = joined(data(1, 2, {"0": 3}, store_bytes=5), data(2, 5, {"0": 4}))
    assert after == data(3, 7, {"0": 7}, store_bytes=5)
    beside = joined(data(2, 5, {"0": 3}, store_bytes=5), data(2, 5, {"4": 9}, store_bytes=6))
    assert beside == data(2, 5, {"0": 3, "4": 9}, store_bytes=11)
    assert summary(beside) == {"decode steps": 2, "mean batch": 2.5, "mean active experts": 3.0, "mean experts read": 6.0}
    assert summary({}) == {}


class Metric:
    """The used part of prometheus_client."""

    def __init__(self, name: str, documentation: str, labelnames: list[str], **more: Any) -> None:
        self.name, self.labelnames = name, labelnames
        self.values: dict[tuple[Any, ...], float] = {}
        MADE[name] = self

    def labels(self, *values: Any) -> Any:
        assert len(values) == len(self.labelnames)
        metric = self

        class Child:
            def set(self, value: float) -> None:
                metric.values[values] = value

            def inc(self, value: float) -> None:
                metric.values[values] = metric.values.get(values, 0) + value

        return Child()


MADE: dict[str, Metric] = {}


def test_prometheus_gets_means_and_totals() -> None:
    gauges = Gauges(Metric, Metric, ["model", "engine"], {0: ["tiny", "0"]})
    gauges.observe(data(2, 6, {"3": 10, "7": 16}, store_bytes=9))
    gauges.observe(data(2, 10, {"3": 12, "7": 12}))
    assert MADE["eldr_active_experts"].values == {("tiny", "0", "3"): 6, ("tiny", "0", "7"): 6}
    assert MADE["eldr_experts_activated"].values == {("tiny", "0", "3"): 22, ("tiny", "0", "7"): 28}
    assert MADE["eldr_experts_read"].values == {("tiny", "0", "3"): 44, ("tiny", "0", "7"): 56}
    assert MADE["eldr_decode_batch"].values == {("tiny", "0"): 5}
    assert MADE["eldr_decode_steps"].values == {("tiny", "0"): 4}
    assert MADE["eldr_decode_step_requests"].values == {("tiny", "0"): 16}
    assert MADE["eldr_store_bytes"].values == {("tiny", "0"): 9}
