"""Writes a line per step of the engine, [done, scheduled, requests, tokens, context, experts, readExperts]:

  done, scheduled   seconds since the epoch at which the scheduler got the step's output and planned the step
  requests, tokens  of the step; equal in a step of decode only (without speculation)
  context           tokens in the KV cache, summed over the requests
  experts           distinct experts of each MoE layer, from the plugin; null if it did not count this step
  readExperts       the same with the padding rows of CUDA graphs, or null

The time between two `done` of a busy engine is what a request's TPOT consists of: scheduler, host, device and
sampling. Costs some 20 µs of host time per step."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import Any

_FLUSH_SECONDS = 0.5


class Recorder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[list[Any]] = []
        self._planned: dict[int, list[Any]] = {}  # rows by the identity of their SchedulerOutput
        self._observed: deque[list[Any]] = deque()  # rows of decode steps that wait for the plugin's count
        self._counts: deque[tuple[list[Any], int, Any]] = deque()
        self._lock = threading.Lock()
        threading.Thread(target=self._flush_forever, daemon=True).start()

    def planned(self, scheduler: Any, output: Any) -> None:
        tokens = output.total_num_scheduled_tokens
        if tokens == 0:
            return
        requests = output.num_scheduled_tokens
        context = sum(scheduler.requests[rid].num_computed_tokens for rid in requests if rid in scheduler.requests)
        row = [0.0, time.time(), len(requests), tokens, context, None, None]
        self._planned[id(output)] = row
        if tokens == len(requests):
            self._observed.append(row)

    def done(self, output: Any) -> None:
        row = self._planned.pop(id(output), None)
        if row is None:
            return
        row[0] = time.time()
        with self._lock:
            self._rows.append(row)

    def counted(self, batch: int, distinct: Any, column: int = 5) -> None:
        """A count of the plugin for the oldest decode step that has none; its batch must be the same."""
        while self._observed and self._observed[0][2] != batch:
            self._observed.popleft()
        if self._observed:
            row = self._observed[0] if column == 6 else self._observed.popleft()
            with self._lock:
                self._counts.append((row, column, distinct))

    def _flush_forever(self) -> None:
        while True:
            time.sleep(_FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, deque()
            rows, self._rows = self._rows, []  # a step's count comes before its end
        for row, column, distinct in counts:
            row[column] = [int(value) for value in distinct.array()]
        if rows:
            with open(self._path, "a") as file:
                file.write("".join(json.dumps(_rounded(row), separators=(",", ":")) + "\n" for row in rows))


def _rounded(row: list[Any]) -> list[Any]:
    return [round(row[0], 6), round(row[1], 6), *row[2:]]


def install(path: str, with_padding: bool) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    if getattr(Scheduler, "_eldr_recorder", None) is not None:
        return
    recorder = Recorder(path)
    Scheduler._eldr_recorder = recorder
    schedule, update = Scheduler.schedule, Scheduler.update_from_output

    def scheduled(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(self, *args, **kwargs)
        recorder.planned(self, output)
        return output

    def updated(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.done(scheduler_output)
        return update(self, scheduler_output, *args, **kwargs)

    Scheduler.schedule, Scheduler.update_from_output = scheduled, updated
    _listen_to_plugin(recorder, with_padding)


def _listen_to_plugin(recorder: Recorder, with_padding: bool) -> None:
    from eldr_vllm.metrics import Tally

    add = Tally.add

    def added(self: Any, batch: int, distinct: Any) -> None:
        recorder.counted(batch, distinct)
        add(self, batch, distinct)

    Tally.add = added
    if not with_padding:
        return
    from eldr_vllm.capture import Capture
    from vllm.forward_context import get_forward_context

    distinct = Capture.distinct

    def with_rows_of_padding(self: Any, tokens: int) -> Any:
        rows = getattr(getattr(get_forward_context(), "batch_descriptor", None), "num_tokens", None)
        if rows is not None:
            recorder.counted(tokens, distinct(self, max(tokens, int(rows))), 6)
        return distinct(self, tokens)

    Capture.distinct = with_rows_of_padding
