from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from eldr_vllm.nixl import delay_agents


def test_agents_get_the_delay_and_are_wrapped_once() -> None:
    made: list[Any] = []
    bind = SimpleNamespace(nixlAgent=lambda name, config: made.append((name, config.pthrDelay)))
    delay_agents(bind, 1000)
    wrapped = bind.nixlAgent
    delay_agents(bind, 1000)
    assert bind.nixlAgent is wrapped
    bind.nixlAgent("p", SimpleNamespace(pthrDelay=0))
    assert made == [("p", 1000)]
