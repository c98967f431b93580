"""Writes a line per step of the engine, [done, planned, requests, tokens, context, experts, readExperts]:

  done, planned     seconds since the epoch at which the scheduler got the step's output and planned the step
  requests, tokens  of the step; equal in a step of decode only (without speculation)
  context           tokens in the KV cache, summed over the requests
  experts           distinct experts of each MoE layer, from the plugin; null if it did not count this step
  readExperts       the same with the padding rows of CUDA graphs

The time between two `done` of a busy engine is what a request's TPOT consists of: scheduler, host, device and
sampling. Costs some 20 µs of host time per step."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import Any

_FLUSH_SECONDS = 0.4
# After this time a count that the plugin has not fetched from the device is given up.
_PATIENCE_SECONDS = 2.0


class Row:
    __slots__ = ("context", "distinct", "done", "planned", "requests", "tokens")

    def __init__(self, planned: float, requests: int, tokens: int, context: int) -> None:
        self.planned, self.requests, self.tokens, self.context = planned, requests, tokens, context
        self.done = 0.0
        self.distinct: Any = None  # the plugin's Fetched: [active, read] of each layer

    def line(self) -> str:
        values = [] if self.distinct is None or not _is_fetched(self.distinct) else [int(value) for value in self.distinct.array()]
        counts = (values[::2], values[1::2]) if values else (None, None)
        row = (round(self.done, 6), round(self.planned, 6), self.requests, self.tokens, self.context, *counts)
        return json.dumps(row, separators=(",", ":")) + "\n"


def _is_fetched(distinct: Any) -> bool:
    """True once the plugin itself has read the value: this thread must not fetch it at the same time."""
    return getattr(distinct, "_download", None) is None


class Recorder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._planned: dict[int, Row] = {}  # by the identity of their SchedulerOutput
        self._uncounted: deque[Row] = deque()  # decode steps that the plugin has not counted yet, oldest first
        self._done: list[Row] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._flush_forever, daemon=True).start()

    def planned(self, scheduler: Any, output: Any) -> None:
        tokens = output.total_num_scheduled_tokens
        if tokens == 0:
            return
        requests = output.num_scheduled_tokens
        known = scheduler.requests
        row = Row(time.time(), len(requests), tokens, sum(known[rid].num_computed_tokens for rid in requests if rid in known))
        self._planned[id(output)] = row
        if tokens == len(requests):
            self._uncounted.append(row)

    def counted(self, batch: int, distinct: Any) -> None:
        """A count of the plugin: of the oldest decode step with that batch that has none."""
        while self._uncounted:
            row = self._uncounted.popleft()
            if row.requests == batch:
                row.distinct = distinct
                return

    def done(self, output: Any) -> None:
        row = self._planned.pop(id(output), None)
        if row is not None:
            row.done = time.time()
            with self._lock:
                self._done.append(row)

    def _flush_forever(self) -> None:
        while True:
            time.sleep(_FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        late = time.time() - _PATIENCE_SECONDS
        with self._lock:
            waits = [row for row in self._done if row.distinct is not None and not _is_fetched(row.distinct) and row.done > late]
            waiting = set(map(id, waits))
            ready, self._done = [row for row in self._done if id(row) not in waiting], waits
        if ready:
            with open(self._path, "a") as file:
                file.write("".join(row.line() for row in ready))


def install(path: str) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    from eldr_vllm.metrics import Tally

    if getattr(Scheduler, "_eldr_recorder", None) is not None:
        return
    recorder = Recorder(path)
    Scheduler._eldr_recorder = recorder
    schedule, update, add = Scheduler.schedule, Scheduler.update_from_output, Tally.add

    def scheduled(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(self, *args, **kwargs)
        recorder.planned(self, output)
        return output

    def updated(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.done(scheduler_output)
        return update(self, scheduler_output, *args, **kwargs)

    def added(self: Any, batch: int, distinct: Any) -> None:
        recorder.counted(batch, distinct)
        add(self, batch, distinct)

    Scheduler.schedule, Scheduler.update_from_output, Tally.add = scheduled, updated, added
