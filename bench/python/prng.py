"""The same generator as in bench/lib/prng.mjs, so that both sides of a comparison use the same numbers. It is counter-based
(mulberry32), which lets NumPy draw a whole array at once."""

import numpy as np


def uniform(seed: int, count: int) -> np.ndarray:
    """`count` multiples of 2**-24 in [0, 1): exact in float32, so that no side works on rounded values."""
    t = np.uint32(seed) + np.arange(1, count + 1, dtype=np.uint32) * np.uint32(0x6D2B79F5)
    t = (t ^ (t >> np.uint32(15))) * (t | np.uint32(1))
    t ^= t + (t ^ (t >> np.uint32(7))) * (t | np.uint32(61))
    return ((t ^ (t >> np.uint32(14))) >> np.uint32(8)) / 2.0**24


def costs(kind: str, n: int, k: int, seed: int) -> np.ndarray:
    """[n × k] costs. `uniform`: independent. `skewed`: every point has a preferred cluster at half the cost, and half of the points
    prefer the first quarter of the clusters, so that full clusters push points away as in balanced k-means."""
    u = uniform(seed, n * k + n)
    c = u[: n * k].reshape(n, k)
    if kind == "skewed":
        home = np.floor(u[n * k :] ** 2 * k).astype(np.int64)
        c[np.arange(n), home] -= 0.5
    return c
