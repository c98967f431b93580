"""Copies to and from the device without waiting for it. Pinned host memory is kept and used again: allocating
it for every call takes longer than the copy itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .store import Array

Tensor = Any


def sent(values: Array, device: Any) -> Tensor:
    """For start-up and rare cases; pinned.py is for every step."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


class Downloads:
    """Copies tensors of one type to the host."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._free: list[_Download] = []

    def fetch(self, tensor: Tensor) -> Fetched:
        """tensor: contiguous, of one dimension. The copy runs after the work queued on the current stream."""
        if self._device.type == "cpu":
            return Fetched(tensor.numpy().copy())
        count = tensor.shape[0]
        download = self._free.pop() if self._free else None
        if download is None or download.host.shape[0] < count:
            download = _Download(_power_of_two(count), tensor.dtype)
        download.host[:count].copy_(tensor, non_blocking=True)
        download.event.record()
        return Fetched(download.values[:count], download, self._free)


class _Download:
    def __init__(self, capacity: int, dtype: Any) -> None:
        self.host = torch.empty(capacity, dtype=dtype, pin_memory=True)
        self.values: Array = self.host.numpy()
        self.event = torch.cuda.Event()


class Fetched:
    """An array on its way to the host; only `array` waits for it."""

    def __init__(self, values: Array, download: _Download | None = None, free: list[_Download] | None = None) -> None:
        self._values, self._download, self._free = values, download, free

    def ready(self) -> bool:
        return self._download is None or bool(self._download.event.query())

    def array(self) -> Array:
        if self._download is not None:
            self._download.event.synchronize()
            self._values = self._values.copy()
            if self._free is not None:
                self._free.append(self._download)
            self._download = None
        return self._values


def fetched(device: Any, tensor: Tensor) -> Fetched:
    """A copy through memory of its own, for sizes that vary."""
    if device.type == "cpu":
        return Fetched(tensor.numpy())
    download = _Download(0, tensor.dtype)
    download.host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    download.event.record()
    return Fetched(download.host.numpy(), download)


def _power_of_two(count: int) -> int:
    return 1 << max(6, (count - 1).bit_length())
