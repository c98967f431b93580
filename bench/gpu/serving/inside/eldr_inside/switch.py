"""Switches capture on and off in a running server by the first byte of a file, so that both are measured in the same
process: servers with the same flags differ by more than capture costs. Off, requests are not followed, blocks are
not reset and ids are not stored; what a CUDA graph has recorded still runs."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any


def install(path: str) -> None:
    from eldr_vllm.capture import Capture
    from eldr_vllm.handoff import HandOffs
    from eldr_vllm.worker import Worker

    file = Path(path)
    if not file.exists():
        file.write_bytes(b"\1")
    with file.open("rb") as opened:
        switch = mmap.mmap(opened.fileno(), 1, access=mmap.ACCESS_READ)

    def if_on(function: Callable[..., Any]) -> Callable[..., Any]:
        def switched(*args: Any) -> Any:
            return function(*args) if switch[0] == 1 else None

        return switched

    HandOffs.follow = if_on(HandOffs.follow)
    Worker.begin = if_on(Worker.begin)
    Capture._record = if_on(Capture._record)
