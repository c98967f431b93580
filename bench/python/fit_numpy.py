"""The steps of `eldr fit`, written with NumPy and SciPy the way one would without ELDR: vectorised, float32 where that is faster, BLAS
for every product (with as many threads as it likes), scipy.stats.rankdata and scipy.optimize.linear_sum_assignment.

usage: fit_numpy.py TRACE [--workers 16] [--pairs 20000] [--seed 0] [--restarts 3] [--out FILE] [--units] [--json]

Times are milliseconds by stage. --units measures single operations after the fit, outside the stages' times. --out writes mask, IDF
weights and centroids, as the fit does."""

import argparse
import json
import time

import numpy as np
import scipy
from safetensors.numpy import load_file, save_file
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from prng import uniform

# The tensor that each transform reads.
SOURCE = {
    "count": "prefill_counts",
    "count-idf": "prefill_counts",
    "sqrt": "prefill_counts",
    "binary": "prefill_counts",
    "gate-prob": "gate_prob_sum",
    "gate-logit": "gate_logit_mean",
    "recent": "prefill_recent",
    "recent-idf": "prefill_recent",
}
SERVABLE = ("prefill_counts", "prefill_recent")  # what a hand-off carries; gate scores stay inside the engine
MAX_ITERATIONS = 100


def draw_pairs(n: int, pairs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices i < j of `pairs` distinct pairs of requests, or of all pairs when there are no more than that."""
    total = n * (n - 1) // 2
    flat = np.arange(total) if pairs >= total else rng.choice(total, pairs, replace=False)
    j = ((1 + np.sqrt(1 + 8 * flat.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > flat  # the root may round up
    return flat - j * (j - 1) // 2, j


def dots_of(x: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Dot product of each pair in each layer, [L × P]; x is [L × N × E]. The whole Gram matrix is cheaper while N is small against P."""
    if x.shape[1] ** 2 < 150 * len(i):
        return np.stack([(layer @ layer.T)[i, j] for layer in x])
    return np.stack([np.vecdot(layer[i], layer[j]) for layer in x])


class Target:
    """Ranks of the decode patterns' similarities: what every ρ is taken against."""

    def __init__(self, similarity: np.ndarray):
        self.centred = rankdata(similarity) - (len(similarity) + 1) / 2
        self.norm = np.linalg.norm(self.centred)

    def rho(self, similarity: np.ndarray) -> np.ndarray:
        """Spearman's ρ along the last axis. Distances are 1 − similarity on both sides, so the sign takes care of itself."""
        ranks = rankdata(similarity, axis=-1)
        ranks -= (similarity.shape[-1] + 1) / 2
        return ranks @ self.centred / (np.linalg.norm(ranks, axis=-1) * self.norm)


def layers_first(tensor: np.ndarray) -> np.ndarray:
    """[N × L × E] of any type to [L × N × E] float32, so that a layer is one matrix for BLAS."""
    return tensor.swapaxes(0, 1).astype(np.float32, order="C")


def transformed(name: str, source: np.ndarray, idf: np.ndarray) -> np.ndarray:
    if name.endswith("-idf"):
        return source * idf[:, None]
    if name == "sqrt":
        return np.sqrt(source)
    return (source > 0).astype(np.float32) if name == "binary" else source


def greedy(dots: np.ndarray, squares: np.ndarray, i: np.ndarray, j: np.ndarray, target: Target) -> dict:
    """Full ordering of the layers (paper §4.2.2, step 3): each step adds the layer with which cumulative ρ is highest. dots: [L × P],
    squares: [L × N]; the sums over the layers taken so far are kept, so a candidate costs one addition and one ranking."""
    left, order, curve = list(range(len(dots))), [], []
    si, sj = squares[:, i], squares[:, j]
    dot, ni, nj = 0, 0, 0
    while left:
        similarity = (dot + dots[left]) / np.sqrt(np.maximum((ni + si[left]) * (nj + sj[left]), 1e-30))
        rho = target.rho(similarity)
        best = int(rho.argmax())
        layer = left.pop(best)
        dot, ni, nj = dot + dots[layer], ni + si[layer], nj + sj[layer]
        order.append(layer)
        curve.append(float(rho[best]))
    return {"order": order, "rho": curve, "peak": int(np.argmax(curve)) + 1}


def seed_centroids(x: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: each next centroid is a point, drawn with a chance that grows with its squared distance to the nearest one so far."""
    chosen = [int(rng.integers(len(x)))]
    nearest = x @ x[chosen[0]]
    while len(chosen) < k:
        weight = np.maximum(1 - nearest, 0).astype(np.float64)
        total = weight.sum()
        chosen.append(int(rng.choice(len(x), p=weight / total)) if total > 0 else int(rng.integers(len(x))))
        np.maximum(nearest, x @ x[chosen[-1]], out=nearest)
    return x[chosen]


def kmeans(x: np.ndarray, k: int, rng: np.random.Generator, balanced: bool) -> dict:
    """Spherical k-means until nothing moves. Balanced: each centroid takes at most ceil(N/K) points, assigned at the least total cost."""
    capacity = -(-len(x) // k)
    centroids, assigned, moved, iterations = seed_centroids(x, k, rng), None, True, 0
    while moved and iterations < MAX_ITERATIONS:
        similarity = x @ centroids.T
        if balanced:
            now = linear_sum_assignment(np.repeat(similarity, capacity, axis=1), maximize=True)[1] // capacity
        else:
            now = similarity.argmax(1)
        moved = assigned is None or not np.array_equal(now, assigned)
        assigned, iterations = now, iterations + 1
        sums = np.eye(k, dtype=x.dtype)[:, assigned] @ x
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centroids = np.where(norms > 0, sums / np.maximum(norms, 1e-12), centroids)
    own = np.vecdot(x, centroids[assigned])
    return {"centroids": centroids, "assigned": assigned, "similarity": float(own.mean()), "iterations": iterations}


def best_of(x: np.ndarray, k: int, seed: int, restarts: int, balanced: bool) -> tuple[dict, int]:
    runs = [kmeans(x, k, np.random.default_rng([seed, r]), balanced) for r in range(restarts)]
    return max(runs, key=lambda run: run["similarity"]), sum(run["iterations"] for run in runs)


class Stages:
    def __init__(self):
        self.list, self.last = [], time.perf_counter()

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.list.append({"name": name, "ms": (now - self.last) * 1e3})
        self.last = now


def median_ms(operation, repeat: int = 31) -> float:
    operation()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        operation()
        times.append((time.perf_counter() - start) * 1e3)
    return float(np.median(times))


def units_of(pairs: int, seed: int, dots, squares, i, j, target: Target, x: np.ndarray, k: int) -> dict:
    values = uniform(seed, pairs).astype(np.float32)
    capacity = -(-len(x) // k)
    similarity = x @ x[:k].T
    slots = np.repeat(similarity, capacity, axis=1)
    return {
        "ranks_ms": median_ms(lambda: rankdata(values)),
        "argsort_ms": median_ms(lambda: np.argsort(values)),  # the floor of any NumPy version: no ties, ranks not put back in place
        "rho_ms": median_ms(lambda: target.rho(values)),
        "greedy_first_pass_ms": median_ms(lambda: target.rho(dots / np.sqrt(np.maximum(squares[:, i] * squares[:, j], 1e-30))), 5),
        "assignment_ms": median_ms(lambda: linear_sum_assignment(slots, maximize=True), 5),
    }


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("trace")
    args.add_argument("--workers", type=int, default=16)
    args.add_argument("--pairs", type=int, default=20_000)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--restarts", type=int, default=3)
    args.add_argument("--out")
    args.add_argument("--units", action="store_true")
    args.add_argument("--json", action="store_true")
    o = args.parse_args()
    start, stages = time.perf_counter(), Stages()

    trace = load_file(o.trace)
    sources = {tensor: layers_first(trace[tensor]) for tensor in dict.fromkeys(SOURCE.values()) if tensor in trace}
    decode = layers_first(trace["decode_counts"])
    layers, requests, experts = decode.shape
    del trace
    stages.end("read")

    rng = np.random.default_rng(o.seed)
    i, j = draw_pairs(requests, o.pairs, rng)
    norm = lambda squares: np.sqrt(np.maximum(squares[..., i] * squares[..., j], 1e-30))
    # Steps divide out in a cosine, so counts of decode steps serve as the pattern.
    target = Target(dots_of(decode, i, j).sum(0) / norm(np.vecdot(decode, decode).sum(0)))
    del decode
    stages.end("pattern")

    idf = np.log((requests + 1) / ((sources["prefill_counts"] > 0).sum(1) + 1)).astype(np.float32)  # [L × E]
    rho, kept = {}, {}
    for name, tensor in SOURCE.items():
        if tensor in sources:
            x = transformed(name, sources[tensor], idf)
            dots, squares = dots_of(x, i, j), np.vecdot(x, x)
            rho[name] = float(target.rho(dots.sum(0) / norm(squares.sum(0))))
            if tensor in SERVABLE:
                kept[name] = dots, squares
    del x
    stages.end("transforms")

    tried = sorted(kept, key=rho.get, reverse=True)[:2]
    curves = {name: greedy(*kept[name], i, j, target) for name in tried}
    chosen = max(tried, key=lambda name: curves[name]["rho"][curves[name]["peak"] - 1])
    mask = sorted(curves[chosen]["order"][: curves[chosen]["peak"]])
    stages.end("layers")

    x = transformed(chosen, sources[SOURCE[chosen]][mask], idf[mask])
    x = x.swapaxes(0, 1).reshape(requests, -1)  # [N × kept·E]
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    stages.end("signatures")

    balanced, iterations = best_of(x, o.workers, o.seed, o.restarts, True)
    stages.end("clusters")
    vanilla, vanilla_iterations = best_of(x, o.workers, o.seed, 1, False)  # for comparison only: one run
    stages.end("vanilla")

    if o.out:
        weights = idf[mask] if chosen.endswith("-idf") else np.ones((len(mask), experts), dtype=np.float32)
        artifact = {"layers": np.array(mask, dtype=np.uint16), "weights": weights, "centroids": balanced["centroids"]}
        save_file(artifact, o.out, metadata={"transform": chosen})
        stages.end("write")

    sizes = lambda assigned: sorted(np.bincount(assigned, minlength=o.workers).tolist(), reverse=True)
    result = {
        "source": {"requests": requests, "layers": layers, "experts": experts},
        "workers": o.workers,
        "pairs": len(i),
        "seed": o.seed,
        "rho": rho,
        "curves": curves,
        "chosen": chosen,
        "layers": mask,
        "peak": curves[chosen]["rho"][curves[chosen]["peak"] - 1],
        "meanSimilarity": balanced["similarity"],
        "sizes": sizes(balanced["assigned"]),
        "iterations": iterations,
        "vanilla": {"meanSimilarity": vanilla["similarity"], "sizes": sizes(vanilla["assigned"]), "iterations": vanilla_iterations},
        "stages": stages.list,
        "total_ms": (time.perf_counter() - start) * 1e3,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
    if o.units:
        result["units"] = units_of(o.pairs, o.seed, *kept[chosen], i, j, target, x, o.workers)
    if o.json:
        print(json.dumps(result))
        return
    print(f"{chosen}: {len(mask)} of {layers} layers, rho {result['peak']:.4f}, mean similarity {balanced['similarity']:.4f}")
    for stage in stages.list:
        print(f"{stage['name']:12s} {stage['ms']:10.1f} ms")
    print(f"{'total':12s} {result['total_ms']:10.1f} ms")
    for name, ms in result.get("units", {}).items():
        print(f"{name:24s} {ms:10.3f}")


if __name__ == "__main__":
    main()
