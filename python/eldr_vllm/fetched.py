"""Copies to and from the device without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .store import Array

Tensor = Any


def sent(values: Array, device: Any) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


class Fetched:
    """A tensor being copied to pinned host memory, after the work queued before it. Only `array` waits for
    the copy."""

    def __init__(self, device: Any, tensor: Tensor) -> None:
        self._event: Any = None
        self._host = tensor
        if device.type == "cpu":
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def array(self) -> Array:
        if self._event is not None:
            self._event.synchronize()
        values: Array = self._host.numpy()
        return values
