"""The classes in which vLLM carries a connector's statistics from its workers to its log and Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from . import log, metrics


@dataclass
class EldrStats(KVConnectorStats):
    """`data`: result of metrics.Tally.take, or empty."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        self.data = metrics.joined(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        return metrics.summary(self.data)

    def is_empty(self) -> bool:
        return not self.data


class EldrPromMetrics(KVConnectorPromMetrics):
    """If these metrics fail, the server continues without them."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], engines: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, engines)
        self._gauges: metrics.Gauges | None = None
        try:
            _unregister_earlier()
            self._gauges = metrics.Gauges(self._gauge_cls, self._counter_cls, labelnames, engines)
        except Exception as error:
            log.warning("no metrics of the plugin: %s: %s", type(error).__name__, error)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        if self._gauges is None:
            return
        try:
            self._gauges.observe(transfer_stats_data, engine_idx)
        except Exception as error:
            self._gauges = None
            log.warning("no metrics of the plugin from now on: %s: %s", type(error).__name__, error)


def _unregister_earlier() -> None:
    """A second engine in one process registers the same names. vLLM unregisters its own metrics in the same
    way."""
    from prometheus_client import REGISTRY

    for collector in list(REGISTRY._collector_to_names):
        if str(getattr(collector, "_name", "")).startswith("eldr_"):
            REGISTRY.unregister(collector)
