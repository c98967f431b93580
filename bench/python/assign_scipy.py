"""Balanced assignment of N points to K clusters of at most ceil(N/K) the usual way: every cluster becomes that many slots, and SciPy's
linear_sum_assignment solves the N × (K·ceil(N/K)) problem. Prints the total cost and the median time as JSON.

usage: assign_scipy.py --points 2048 --clusters 16 [--kind uniform|skewed] [--seed 1] [--repeat 5]"""

import argparse
import json
import statistics
import time

import numpy as np
import scipy
from scipy.optimize import linear_sum_assignment

from prng import costs


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--points", type=int, default=2048)
    args.add_argument("--clusters", type=int, default=16)
    args.add_argument("--kind", choices=["uniform", "skewed"], default="skewed")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--repeat", type=int, default=5)
    o = args.parse_args()

    cost = costs(o.kind, o.points, o.clusters, o.seed)
    capacity = -(-o.points // o.clusters)
    expand, solve = [], []
    for _ in range(o.repeat + 1):  # the first run warms up
        t0 = time.perf_counter()
        slots = np.repeat(cost, capacity, axis=1)
        t1 = time.perf_counter()
        rows, columns = linear_sum_assignment(slots)
        t2 = time.perf_counter()
        expand.append((t1 - t0) * 1e3)
        solve.append((t2 - t1) * 1e3)
    cluster = columns // capacity
    print(
        json.dumps(
            {
                "points": o.points,
                "clusters": o.clusters,
                "kind": o.kind,
                "seed": o.seed,
                "objective": float(cost[rows, cluster].sum()),
                "largest": int(np.bincount(cluster).max()),
                "expand_ms": statistics.median(expand[1:]),
                "solve_ms": statistics.median(solve[1:]),
                "scipy": scipy.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
