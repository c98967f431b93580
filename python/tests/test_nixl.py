from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from eldr_vllm import nixl
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


@pytest.mark.parametrize("gpu", [True, False])
def test_a_delay_on_a_gpu_is_warned_about(gpu: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("vllm", "vllm.distributed", "vllm.platforms")}
    modules["vllm.distributed"].nixl_utils = SimpleNamespace(_load_nixl_attr=lambda name: None)
    modules["vllm.platforms"].current_platform = SimpleNamespace(is_cuda_alike=lambda: gpu)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv(nixl.VARIABLE, "1000")
    nixl.apply()
    assert modules["vllm.distributed"].nixl_utils._eldr_delay == 1000
    assert ("slows every KV transfer" in caplog.text) == gpu
