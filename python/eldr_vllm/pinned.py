"""Host memory that kernels read and write in place, without copies. It is pinned, and is used again only after an
event says that the device is done with it: PyTorch does not know of such accesses, so it must not get it back
earlier either."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from .store import Array


class Pinned:
    """Words of 32 bits. values, items: the same for the host; items takes an array("i") without a detour through
    NumPy."""

    def __init__(self, count: int, device: Any) -> None:
        on_device = device.type != "cpu"
        self.count = 1 << max(6, (count - 1).bit_length())
        self.words = torch.empty(self.count, dtype=torch.int32, pin_memory=on_device)
        self.values: Array = self.words.numpy()
        self.items: Any = memoryview(self.values)
        self._event = torch.cuda.Event() if on_device else None

    def queued(self) -> None:
        """All work that uses this memory has been queued on the current stream."""
        if self._event is not None:
            self._event.record()

    def done(self) -> bool:
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


class Pool:
    def __init__(self, device: Any) -> None:
        self._device = device
        self._back: deque[Pinned] = deque()

    def take(self, count: int) -> Pinned:
        """count: words of 32 bits."""
        if self._back and self._back[0].done():
            oldest = self._back.popleft()
            if oldest.count >= count:
                return oldest
        return Pinned(count, self._device)

    def give(self, pinned: Pinned) -> None:
        """After `queued`; the device may still use it."""
        self._back.append(pinned)
