"""Host time of the plugin's functions in a server: calls and nanoseconds, written to a file twice a second. The
times of a function include those of the functions it calls. Names that the plugin no longer has are listed as
missing."""

from __future__ import annotations

import importlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

# module, class or None, function
FUNCTIONS = [
    ("connector", "EldrConnector", name)
    for name in (
        "on_new_request",
        "get_num_new_matched_tokens",
        "update_state_after_alloc",
        "build_connector_meta",
        "request_finished_all_groups",
        "update_connector_output",
        "bind_connector_metadata",
        "wait_for_save",
        "build_connector_worker_meta",
        "get_kv_connector_stats",
    )
] + [
    ("capture", "Capture", "_record"),
    ("recorder", "KernelRecorder", "record"),
    ("torch_store", "TorchStore", "scatter"),
    ("torch_store", "TorchStore", "scatter_layers"),
    ("torch_store", "TorchStore", "sums"),
    ("launch", "Launcher", "__call__"),
    ("pinned", "Pool", "take"),
    ("pinned", "Pinned", "queued"),
    ("fetched", "Downloads", "fetch"),
    ("fetched", "Fetched", "array"),
    ("messages", "Later", "get"),
    ("handoff", "HandOffs", "_fill"),
    ("wire", None, "encode"),
]


class Timers:
    def __init__(self, path: str) -> None:
        self.path = f"{path}.{os.getpid()}.json"
        self.calls: dict[str, list[int]] = {}  # name → calls, nanoseconds
        self.missing: list[str] = []
        threading.Thread(target=self._write_forever, daemon=True).start()

    def wrap(self, owner: Any, name: str, label: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)
        cell = self.calls.setdefault(label, [0, 0])
        clock = time.perf_counter_ns

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = clock()
            try:
                return function(*args, **kwargs)
            finally:
                cell[0] += 1
                cell[1] += clock() - began

        setattr(owner, name, timed)

    def _write_forever(self) -> None:
        while True:
            time.sleep(0.5)
            if any(calls for calls, _ in self.calls.values()):
                with open(f"{self.path}.new", "w") as file:
                    json.dump({"calls": self.calls, "missing": self.missing}, file)
                os.replace(f"{self.path}.new", self.path)


def install(path: str) -> None:
    timers = Timers(path)
    for module, owner, name in FUNCTIONS:
        label = ".".join(part for part in (owner or module, name) if part)
        try:
            found = importlib.import_module(f"eldr_vllm.{module}")
            timers.wrap(getattr(found, owner) if owner else found, name, label)
        except (ImportError, AttributeError):
            timers.missing.append(label)
