"""Metrics of decode steps, distinct experts per layer and batch size, through vLLM's connector metrics.

"active" are the experts of a step's requests. "read" are those of all rows that its kernels compute: a CUDA
graph has a fixed size, and vLLM fills it up with rows of padding, which have experts too."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

# If more steps than this wait for the device, the oldest are dropped; the host never waits for the device.
_MAX_PENDING: Final = 64


class Tally:
    """A worker's sums since the last report. Adds results of the device once they are available."""

    def __init__(self, layers: list[int], every: int = 1) -> None:
        self.layers, self.every = layers, every
        self._seen = 0
        self._pending: deque[tuple[int, Any]] = deque(maxlen=_MAX_PENDING)
        self._active = [0] * len(layers)
        self._read = [0] * len(layers)
        self._steps = self._requests = 0
        self._once: dict[str, int] = {}

    def once(self, key: str, value: int) -> None:
        """Reports a constant value, such as the size of the store, once."""
        self._once[key] = value

    def is_due(self) -> bool:
        self._seen += 1
        return self._seen % self.every == 0

    def add(self, batch: int, distinct: Any) -> None:
        """distinct: a Fetched of [layers, 2], active and read."""
        self._pending.append((batch, distinct))

    @property
    def is_empty(self) -> bool:
        """Nothing is observed or waits for the device."""
        return not (self._pending or self._steps or self._once)

    def take(self) -> dict[str, Any] | None:
        """Plain data; None if there is nothing new."""
        while self._pending and self._pending[0][1].ready():
            batch, distinct = self._pending.popleft()
            values = distinct.array().tolist()
            self._active = [have + value for have, value in zip(self._active, values[::2], strict=True)]
            self._read = [have + value for have, value in zip(self._read, values[1::2], strict=True)]
            self._steps += 1
            self._requests += batch
        if self._steps == 0 and not self._once:
            return None
        data: dict[str, Any] = {
            "steps": self._steps,
            "requests": self._requests,
            "active": self._by_layer(self._active),
            "read": self._by_layer(self._read),
            "once": self._once,
        }
        self._active, self._read = [0] * len(self.layers), [0] * len(self.layers)
        self._steps, self._requests, self._once = 0, 0, {}
        return data

    def _by_layer(self, totals: list[int]) -> dict[str, int]:
        return {str(layer): total for layer, total in zip(self.layers, totals, strict=True)} if self._steps else {}


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Joins two reports: of one worker at different times, or of two pipeline stages, which have different
    layers but the same steps."""
    if not one:
        return other
    if not other:
        return one
    apart = bool(one["active"]) and bool(other["active"]) and not set(one["active"]) & set(other["active"])
    added = {name: dict(one[name]) for name in ("active", "read")}
    for name, totals in added.items():
        for layer, total in other[name].items():
            totals[layer] = totals.get(layer, 0) + total
    once = dict(one["once"])
    for key, value in other["once"].items():
        once[key] = once.get(key, 0) + value if apart else max(once.get(key, 0), value)
    steps = max(one["steps"], other["steps"]) if apart else one["steps"] + other["steps"]
    requests = max(one["requests"], other["requests"]) if apart else one["requests"] + other["requests"]
    return {"steps": steps, "requests": requests, **added, "once": once}


def summary(data: dict[str, Any]) -> dict[str, int | float]:
    """For vLLM's log line."""
    steps = data.get("steps", 0)
    if steps == 0:
        return {}
    layers = max(1, len(data["active"]))
    return {
        "decode steps": steps,
        "mean batch": round(data["requests"] / steps, 2),
        "mean active experts": round(sum(data["active"].values()) / (steps * layers), 2),
        "mean experts read": round(sum(data["read"].values()) / (steps * layers), 2),
    }


class Gauges:
    """Registers Prometheus metrics with vLLM's classes, with one child per engine and layer."""

    def __init__(self, gauge: Any, counter: Any, labelnames: list[str], engines: dict[int, list[object]]) -> None:
        self._engines = engines
        layered = [*labelnames, "layer"]
        recent: dict[str, Any] = {"multiprocess_mode": "mostrecent"}
        self._active = gauge(
            name="eldr_active_experts",
            documentation="Distinct experts per decode step, mean of the last report",
            labelnames=layered,
            **recent,
        )
        self._batch = gauge(
            name="eldr_decode_batch", documentation="Requests per decode step, mean of the last report", labelnames=labelnames, **recent
        )
        self._activated = counter(
            name="eldr_experts_activated", documentation="Distinct experts, summed over decode steps", labelnames=layered
        )
        self._read = counter(
            name="eldr_experts_read",
            documentation="Distinct experts of all rows of decode steps, with those that pad a CUDA graph, summed over steps",
            labelnames=layered,
        )
        self._steps = counter(name="eldr_decode_steps", documentation="Decode steps observed", labelnames=labelnames)
        self._requests = counter(
            name="eldr_decode_step_requests", documentation="Requests, summed over decode steps", labelnames=labelnames
        )
        self._once = {
            "store_bytes": gauge(name="eldr_store_bytes", documentation="Memory of the expert store", labelnames=labelnames, **recent)
        }

    def observe(self, data: dict[str, Any], engine: int = 0) -> None:
        labels = self._engines.get(engine, [])
        for key, value in data.get("once", {}).items():
            if key in self._once:
                self._once[key].labels(*labels).set(value)
        steps = data.get("steps", 0)
        if steps == 0:
            return
        for layer, total in data["active"].items():
            self._active.labels(*labels, layer).set(total / steps)
            self._activated.labels(*labels, layer).inc(total)
            self._read.labels(*labels, layer).inc(data["read"][layer])
        self._batch.labels(*labels).set(data["requests"] / steps)
        self._steps.labels(*labels).inc(steps)
        self._requests.labels(*labels).inc(data["requests"])
