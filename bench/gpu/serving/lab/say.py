"""Progress lines with the seconds since the start, printed at once."""

from __future__ import annotations

import time
from typing import Any

_START = time.monotonic()


def elapsed() -> float:
    return time.monotonic() - _START


def say(*words: Any) -> None:
    print(f"[{elapsed():6.1f}]", *words, flush=True)
