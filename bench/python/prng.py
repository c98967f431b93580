"""The generator that bench/lib/prng.mjs also has, so that both sides of a comparison work on the same numbers. It is counter-based
(mulberry32), which lets NumPy draw a whole array at once."""

import numpy as np


def uniform(seed: int, count: int) -> np.ndarray:
    """`count` multiples of 2**-24 in [0, 1): exact in float32, so that no side works on rounded values."""
    t = np.uint32(seed) + np.arange(1, count + 1, dtype=np.uint32) * np.uint32(0x6D2B79F5)
    t = (t ^ (t >> np.uint32(15))) * (t | np.uint32(1))
    t ^= t + (t ^ (t >> np.uint32(7))) * (t | np.uint32(61))
    return ((t ^ (t >> np.uint32(14))) >> np.uint32(8)) / 2.0**24


def costs(kind: str, n: int, k: int, seed: int) -> np.ndarray:
    """[n × k] costs. `uniform`: independent. `skewed`: every point has a home that is cheaper by a half, and half of the points live
    in the first quarter of the homes, so that full clusters push points away as they do in balanced k-means."""
    u = uniform(seed, n * k + n)
    c = u[: n * k].reshape(n, k)
    if kind == "skewed":
        home = np.floor(u[n * k :] ** 2 * k).astype(np.int64)
        c[np.arange(n), home] -= 0.5
    return c
