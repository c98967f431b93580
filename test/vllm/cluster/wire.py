"""Wire times of requests and tokens between a client and a server, measured independently of both."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median

from cluster.door import Door


@dataclass
class Passed:
    """One request: when it arrived, and when each chunk with a token passed, in milliseconds."""

    asked_ms: float
    tokens_ms: list[float] = field(default_factory=list)


class Wire(Door):
    """For clients that send one streamed completion at a time."""

    def __init__(self, url: str) -> None:
        self.requests: list[Passed] = []
        super().__init__(url)

    def asked(self, data: bytes) -> None:
        if data.startswith(b"POST /v1/completions "):
            self.requests.append(Passed(time.perf_counter() * 1000))

    def answered(self, data: bytes) -> None:
        if self.requests and b'"choices":[{' in data:
            self.requests[-1].tokens_ms.append(time.perf_counter() * 1000)

    def p50(self, requests: int, tokens: int) -> dict[str, float]:
        """Figures of the last requests, each with this many tokens."""
        counted = self.requests[-requests:]
        assert len(counted) == requests
        first = [one.tokens_ms[0] - one.asked_ms for one in counted]
        whole = [one.tokens_ms[-1] - one.asked_ms for one in counted]
        rest = [(one.tokens_ms[-1] - one.tokens_ms[0]) / (tokens - 1) for one in counted]
        return {"ttft": median(first), "tpot": median(rest), "e2el": median(whole)}
