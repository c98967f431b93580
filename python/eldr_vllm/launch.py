"""Launches a compiled kernel directly. Triton's own launch binds and classifies every argument again, which takes
ten times as long."""

from __future__ import annotations

from typing import Any

from . import log


class Launcher:
    """One kernel with its constants, in the order of its parameters, which they end. The first launch of a `key`
    goes through Triton, later ones reuse what that compiled. So what varies between launches of the same key must
    not be specialized by Triton: integers are in do_not_specialize, pointers to memory of unknown alignment in
    do_not_specialize_on_alignment, and types that vary are part of the key."""

    def __init__(self, kernel: Any, **constants: Any) -> None:
        self._kernel, self._constants = kernel, constants
        self._tail = tuple(constants.values())
        self._made: dict[Any, Any] = {}
        self._direct = True
        self._device = 0
        self._stream_of: Any = None

    def __call__(self, grid: tuple[int, int, int], *args: Any, key: Any = None) -> None:
        made = self._made.get(key)
        if made is not None:
            try:
                # The current stream, so a launch may be recorded in a CUDA graph.
                stream = self._stream_of(self._device)
                made.run(*grid, stream, made.function, made.packed_metadata, None, None, None, *args, *self._tail)
                return
            except (AttributeError, TypeError) as error:  # another Triton; raised before anything is launched
                log.warning("kernels are launched more slowly: %s: %s", type(error).__name__, error)
                self._direct = False
                self._made.clear()
        made = self._kernel[grid](*args, **self._constants, num_warps=4)
        if self._direct:
            self._keep(key, made)

    def _keep(self, key: Any, made: Any) -> None:
        """made: what Triton says it launched; None from its interpreter."""
        try:
            from triton.runtime import driver

            if made is not None and callable(made.run) and made.function and made.packed_metadata:
                self._device, self._stream_of = driver.active.get_current_device(), driver.active.get_current_stream
                self._made[key] = made
        except (AttributeError, ImportError):
            self._direct = False
