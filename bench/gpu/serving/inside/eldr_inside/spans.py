"""How long each request is in the engine: milliseconds from the moment the engine takes it to the one at which the
output that finishes it leaves, one line per request. The API server, which adds most of the noise of a short request,
is in another process."""

from __future__ import annotations

import threading
import time
from typing import Any

_FLUSH_SECONDS = 0.2


class Spans:
    def __init__(self, path: str) -> None:
        self._path = path
        self._began: dict[str, int] = {}
        self._done: list[float] = []
        threading.Thread(target=self._flush_forever, daemon=True).start()

    def began(self, rid: str) -> None:
        self._began[rid] = time.perf_counter_ns()

    def left(self, outputs: Any) -> None:
        now = time.perf_counter_ns()
        for of_client in (outputs or {}).values():
            for output in of_client.outputs:
                if output.finish_reason is not None and (began := self._began.pop(output.request_id, None)) is not None:
                    self._done.append((now - began) / 1e6)

    def _flush_forever(self) -> None:
        while True:
            time.sleep(_FLUSH_SECONDS)
            done, self._done = self._done, []
            if done:
                with open(self._path, "a") as file:
                    file.write("".join(f"{ms:.4f}\n" for ms in done))


def install(path: str) -> None:
    from vllm.v1.engine.core import EngineCore

    spans = Spans(path)
    add = EngineCore.add_request

    def added(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        spans.began(request.request_id)
        return add(self, request, *args, **kwargs)

    def watched(step: Any) -> Any:
        def run(self: Any) -> Any:
            result = step(self)
            spans.left(result[0])
            return result

        return run

    EngineCore.add_request = added
    EngineCore.step, EngineCore.step_with_batch_queue = watched(EngineCore.step), watched(EngineCore.step_with_batch_queue)
