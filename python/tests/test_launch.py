"""Direct launches, and the memory that they read and write, without a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from eldr_vllm.launch import Launcher
from eldr_vllm.pinned import Pool


class Kernel:
    """Stands for Triton's: notes its launches, and returns what it compiled."""

    def __init__(self, run: Any) -> None:
        self.launches: list[Any] = []
        self.made = SimpleNamespace(run=run, function=5, packed_metadata=(4, 1, 0))

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **constants: Any) -> Any:
            self.launches.append((grid, args, constants))
            return self.made

        return launch


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    active = SimpleNamespace(get_current_device=lambda: 2, get_current_stream=lambda device: 100 + device)
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))


def test_later_launches_are_direct_and_each_key_is_compiled() -> None:
    direct: list[Any] = []
    kernel = Kernel(lambda *args: direct.append(args))
    launch = Launcher(kernel, SIZE=16, RECENT=False)
    launch((1, 2, 3), "a", 7, key="int32")
    launch((4, 5, 6), "b", 8, key="int32")
    launch((1, 1, 1), "c", 9, key="int64")
    constants = {"SIZE": 16, "RECENT": False, "num_warps": 4}
    assert kernel.launches == [((1, 2, 3), ("a", 7), constants), ((1, 1, 1), ("c", 9), constants)]
    assert direct == [(4, 5, 6, 102, 5, (4, 1, 0), None, None, None, "b", 8, 16, False)]


def test_another_triton_is_launched_plainly(caplog: pytest.LogCaptureFixture) -> None:
    def other(*_: Any) -> None:
        raise TypeError("function takes other arguments")

    kernel = Kernel(other)
    launch = Launcher(kernel)
    for _ in range(3):
        launch((1, 1, 1), "a")
    assert len(kernel.launches) == 3
    assert caplog.text.count("launched more slowly") == 1


def test_memory_is_used_again_only_when_the_device_is_done() -> None:
    pool = Pool(torch.device("cpu"))
    first = pool.take(100)
    pool.give(first)
    first.done = lambda: False  # type: ignore[method-assign]
    second = pool.take(100)
    assert second is not first
    first.done = lambda: True  # type: ignore[method-assign]
    assert pool.take(128) is first
    pool.give(first)
    assert pool.take(1000).count >= 1000  # the smaller one is dropped
    assert pool.take(10) is not first
