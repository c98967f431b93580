"""Golden values for the numeric parts of the fit, from NumPy and SciPy in float64. The tests read the JSON files; this script is run
only to change them.

    python3 -m venv .venv && .venv/bin/pip install -r bench/requirements.txt
    .venv/bin/python test/golden/numerics/make.py             # numerics.json.gz; lab16.json too where the lab traces are found
    .venv/bin/python test/golden/numerics/make.py --traces DIR

All inputs are in numerics.json.gz beside the expected values, and are exact in float32. A cosine is dot/√(|x|²·|y|²), rounded to float32
before it is ranked: values that are equal in exact arithmetic then tie whatever the order of the operations, and the radix sort under
test ranks float32 as well. `float64` next to a ρ is the same without that rounding."""

import argparse
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import scipy
from safetensors.numpy import load_file
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata, spearmanr

HERE = Path(__file__).resolve().parent
TRACES = HERE.parents[3] / "shared" / "traces"


# ---- ranks


def rank_cases(rng: np.random.Generator) -> list[dict]:
    f32 = lambda values: np.asarray(values, dtype=np.float32)
    tiny = np.float32(2.0**-149)
    cases = {
        "one value": f32([3]),
        "all equal": f32([2.5] * 7),
        "rising": f32(np.arange(20)),
        "falling": f32(-np.arange(20)),
        "zeros of both signs are one tie": f32([0.0, -0.0, 1, -0.0, 0.0, -1]),
        "negative values": f32([-1, -3, -2, -3, 5, -1.5, 0]),
        "both sides of zero, smallest steps": f32([tiny, -tiny, 0, -0.0, 2 * tiny, -2 * tiny]),
        "largest and smallest magnitudes": f32([3.4028235e38, -3.4028235e38, 1e-38, -1e-38, 1, -1, 0]),
        "neighbours in the last bit": f32([np.nextafter(f32(0.7), f32(d)) for d in (0, 1, 0, 1)] + [f32(0.7)]),
        "two values, 300 of them": f32(rng.integers(0, 2, 300)),
        "integers with many ties": f32(rng.integers(-9, 10, 400)),
        "cosines rounded to 1/64": f32(np.round(rng.random(300) * 64) / 64),
        "no ties": f32(rng.standard_normal(300)),
        "wide range of exponents": f32(np.sign(rng.standard_normal(200)) * 10.0 ** rng.uniform(-30, 30, 200)),
    }
    return [{"name": name, "values": plain(x), "ranks": rankdata(x.astype(np.float64)).tolist()} for name, x in cases.items()]


def spearman_cases(rng: np.random.Generator) -> list[dict]:
    f32 = lambda values: np.asarray(values, dtype=np.float32)
    x = f32(rng.standard_normal(200))
    ties = f32(rng.integers(0, 6, 200))
    cases = {
        "same order": (f32([1, 2, 3, 4]), f32([10, 20, 25, 100])),
        "opposite order": (f32([1, 2, 3, 4]), f32([4, 3, 2, 1])),
        "ties on one side": (x, f32(np.round(x * 2))),
        "ties on both sides": (ties, f32(ties + rng.integers(0, 4, 200))),
        "weak relation": (x, f32(0.3 * x + rng.standard_normal(200))),
        "no relation": (x, f32(rng.standard_normal(200))),
        "negative relation with ties": (ties, f32(rng.integers(0, 3, 200) - ties)),
        "zeros of both signs": (f32([0.0, -0.0, 1, 2, -1, 3]), f32([-0.0, 0.0, 1, 3, -2, 2])),
    }
    return [
        {"name": name, "x": plain(a), "y": plain(b), "rho": float(spearmanr(a.astype(np.float64), b.astype(np.float64)).statistic)}
        for name, (a, b) in cases.items()
    ]


# ---- signature quality


def small_trace(rng: np.random.Generator) -> dict:
    """60 requests, 4 layers, 16 experts, top-2: three domains, layers of falling use, one expert that all use and one that none does."""
    requests, layers, experts, top_k = 60, 4, 16, 2
    domain = rng.integers(0, 3, requests)
    tokens, steps = rng.integers(12, 60, requests), rng.integers(30, 50, requests)
    liked = rng.standard_normal((3, layers, experts)) * np.array([2.2, 1.2, 0.5, 0.1])[None, :, None]
    self_like = rng.standard_normal((requests, layers, experts)) * np.array([0.6, 0.8, 1.0, 1.2])[None, :, None]
    drift = rng.standard_normal((requests, layers, experts)) * 0.5
    score = liked[domain] + self_like
    score[:, 1, 3] += 6  # used by all: weighs nothing after IDF
    score[:, 2, 7] -= 40  # used by none

    def count(score: np.ndarray, how_often: np.ndarray) -> np.ndarray:
        out = np.zeros((requests, layers, experts), dtype=np.int64)
        for i in range(requests):
            for l in range(layers):
                # The top-k of scores with Gumbel noise: k different experts for each token.
                noisy = score[i, l] + rng.gumbel(size=(how_often[i], experts))
                np.add.at(out[i, l], np.argsort(-noisy, axis=1)[:, :top_k], 1)
        return out

    prefill, decode = count(score, tokens), count(score + drift, steps)
    return {"prefill": prefill, "decode": decode, "top_k": top_k, "tokens": tokens, "steps": steps}


def transforms(counts: np.ndarray) -> dict[str, np.ndarray]:
    c = counts.astype(np.float64)
    return {"count": c, "count-idf": c * idf_of(c), "sqrt": np.sqrt(c), "binary": (c > 0) * 1.0}


def idf_of(counts: np.ndarray) -> np.ndarray:
    return np.log((len(counts) + 1) / ((counts > 0).sum(0) + 1))


class PairSpace:
    """Dots [L × pairs] and squared norms [L × N] of one transform over all pairs i < j. Cosines of any subset of layers are sums of these."""

    def __init__(self, x: np.ndarray):
        self.i, self.j = np.triu_indices(len(x), 1)
        self.dots = np.stack([(x[:, l] @ x[:, l].T)[self.i, self.j] for l in range(x.shape[1])])
        self.squares = (x**2).sum(2).T

    def cosines(self, layers: list[int]) -> np.ndarray:
        dot, square = self.dots[layers].sum(0), self.squares[layers].sum(0)
        return dot / np.sqrt(np.maximum(square[self.i] * square[self.j], 1e-300))


def rho(a: np.ndarray, b: np.ndarray, dtype=np.float32) -> float:
    return float(np.corrcoef(rankdata(a.astype(dtype)), rankdata(b.astype(dtype)))[0, 1])


def greedy(space: PairSpace, pattern: np.ndarray) -> dict:
    """`lead` is by how much the layer that was taken beats the next best one: below about 1e-6 another order would be as good."""
    fixed = rankdata(pattern.astype(np.float32))
    left, order, curve, lead = list(range(len(space.dots))), [], [], []
    while left:
        tried = [float(np.corrcoef(rankdata(space.cosines(order + [l]).astype(np.float32)), fixed)[0, 1]) for l in left]
        best = int(np.argmax(tried))
        lead.append(tried[best] - max(tried[:best] + tried[best + 1 :], default=-1.0))
        curve.append(tried[best])
        order.append(left.pop(best))
    return {"order": order, "rho": curve, "peak": int(np.argmax(curve)) + 1, "lead": min(lead)}


def quality_of(prefill: dict[str, np.ndarray], decode: np.ndarray, steps: np.ndarray, order_for: list[str]) -> dict:
    pattern_space = PairSpace(decode / steps[:, None, None])
    everything = list(range(decode.shape[1]))
    pattern = pattern_space.cosines(everything)
    out = {}
    for name, x in prefill.items():
        space = PairSpace(x)
        cosines = space.cosines(everything)
        out[name] = {"rho": rho(cosines, pattern), "float64": rho(cosines, pattern, np.float64)}
        if name in order_for:
            out[name]["greedy"] = greedy(space, pattern)
    return out


# ---- assignment


def assignment_cases(rng: np.random.Generator) -> list[dict]:
    """Costs are multiples of 1/256, so that totals are exact and can be compared with ===."""
    grid = lambda x: np.round(np.asarray(x) * 256) / 256

    def points(n: int, k: int, copies: int = 1) -> np.ndarray:
        p = np.repeat(rng.standard_normal((-(-n // copies), 5)), copies, axis=0)[:n]
        c = rng.standard_normal((k, 5))
        unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)
        return grid(1 - unit(p) @ unit(c).T)

    def crowded(n: int, k: int) -> np.ndarray:
        c = rng.random((n, k))
        c[np.arange(n), np.floor(rng.random(n) ** 3 * k).astype(int)] -= 0.7
        return grid(c)

    cases = [
        ("one point, one cluster", grid(rng.random((1, 1)))),
        ("K = 1", grid(rng.random((9, 1)))),
        ("K = N", grid(rng.random((8, 8)))),
        ("K = N, crowded", crowded(12, 12)),
        ("N divisible by K", grid(rng.random((24, 6)))),
        ("N one more than a multiple of K", grid(rng.random((25, 6)))),
        ("N one less than a multiple of K", grid(rng.random((23, 6)))),
        ("N one more than K: most clusters half empty", grid(rng.random((9, 8)))),
        ("N = 2K − 1", grid(rng.random((15, 8)))),
        ("a dear cluster stays empty while the others have room", grid(rng.random((6, 4)) + np.array([0, 0, 5, 0]))),
        ("two clusters", crowded(31, 2)),
        ("equal rows", grid(np.tile(rng.random((1, 5)), (22, 1)))),
        ("equal columns", grid(np.tile(rng.random((20, 1)), (1, 5)))),
        ("all costs equal", np.full((17, 4), 0.5)),
        ("all costs zero", np.zeros((16, 4))),
        ("duplicate points in fours", points(30, 4, copies=4)),
        ("duplicate points in sevens, N not divisible", points(29, 6, copies=7)),
        ("duplicate clusters", (lambda c: np.concatenate([c, c], axis=1))(points(26, 3))),
        ("negative costs", grid(-rng.random((27, 5)) * 3)),
        ("costs of both signs", grid(rng.standard_normal((33, 5)))),
        ("integers 0 and 1", rng.integers(0, 2, (28, 6)).astype(float)),
        ("integers 0 to 3", rng.integers(0, 4, (35, 8)).astype(float)),
        ("integers −5 to 5, N not divisible", rng.integers(-5, 6, (37, 7)).astype(float)),
        ("large integers", rng.integers(0, 10**6, (21, 5)).astype(float)),
        ("everyone wants the first cluster", grid(np.concatenate([rng.random((24, 1)) * 0.1, 1 + rng.random((24, 5))], axis=1))),
        ("everyone ranks the clusters alike", grid(rng.random((24, 1)) * np.arange(1, 7)[None, :])),
        ("chains: full clusters push points along", grid(np.abs(np.arange(30)[:, None] / 30 * 3 - np.arange(6)[None, :]))),
        ("crowded, 40 points", crowded(40, 8)),
        ("crowded, N not divisible", crowded(41, 7)),
        ("cosine distances", points(36, 6)),
        ("cosine distances, K large", points(40, 16)),
        ("cosine distances, 64 points", points(64, 5)),
    ]
    out = []
    for name, cost in cases:
        n, k = cost.shape
        capacity = -(-n // k)
        rows, slots = linear_sum_assignment(np.repeat(cost, capacity, axis=1))
        total = float(cost[rows, slots // capacity].sum())
        assert np.array_equal(cost.astype(np.float32), cost) and np.bincount(slots // capacity).max() <= capacity
        out.append({"name": name, "points": n, "clusters": k, "capacity": capacity, "costs": plain(cost.ravel()), "total": plain([total])[0]})
    return out


# ---- principal components


def pca_cases(rng: np.random.Generator) -> list[dict]:
    def case(name: str, x: np.ndarray) -> dict:
        x = np.round(x * 256) / 256
        s = np.linalg.svd(x - x.mean(0), compute_uv=False)
        return {"name": name, "rows": x.shape[0], "width": x.shape[1], "values": plain(x.ravel()), "explained": (s**2 / (s**2).sum())[:2].tolist()}

    spread = rng.standard_normal((40, 12)) * np.linspace(3, 0.3, 12)
    line = np.outer(rng.integers(-50, 50, 20), rng.integers(-3, 4, 6)) + 0.0
    return [
        case("40 points, 12 dimensions", spread),
        case("fewer points than dimensions", rng.standard_normal((8, 20)) * np.linspace(2, 0.5, 20)),
        case("far from the origin", spread[:25] + 30),
        case("all on one line", line),
    ]


# ---- files


def plain(values) -> list:
    """Numbers as short as JSON allows: whole ones without a fraction, except −0, which JSON keeps as -0.0."""
    return [int(v) if float(v).is_integer() and abs(v) < 2**53 and not (v == 0 and np.signbit(v)) else float(v) for v in values]


def numerics() -> dict:
    rng = np.random.default_rng(20260422)
    trace = small_trace(rng)
    prefill, decode = trace["prefill"], trace["decode"]
    requests, layers, experts = prefill.shape
    idf_counts = np.array([[[0, 2, 5, 0], [1, 0, 3, 3]], [[0, 1, 4, 2], [0, 0, 6, 1]], [[0, 7, 0, 0], [2, 0, 4, 1]]])
    return {
        "source": {"numpy": np.__version__, "scipy": scipy.__version__},
        "ranks": rank_cases(rng),
        "spearman": spearman_cases(rng),
        "idf": [
            {"name": "used by none, one, some and all", "requests": 3, "counts": idf_counts.ravel().tolist(), "weights": idf_of(idf_counts).ravel().tolist()},
            {"name": "the counts of `quality`", "requests": requests, "weights": idf_of(prefill).ravel().tolist()},
        ],
        "quality": {
            "requests": requests,
            "layers": layers,
            "experts": experts,
            "top_k": trace["top_k"],
            "pairs": requests * (requests - 1) // 2,
            "prefill_counts": prefill.ravel().tolist(),
            "prompt_tokens": trace["tokens"].tolist(),
            "decode_counts": decode.ravel().tolist(),
            "decode_steps": trace["steps"].tolist(),
            "transforms": quality_of(transforms(prefill), decode, trace["steps"], ["count", "count-idf", "sqrt", "binary"]),
        },
        "assignment": assignment_cases(rng),
        "pca": pca_cases(rng),
    }


def lab16(traces: Path) -> dict:
    out = {"source": {"numpy": np.__version__, "scipy": scipy.__version__}}
    for name in ("lab16-task", "lab16-lang"):
        file = traces / f"{name}.calibration.safetensors"
        z = load_file(file)
        prefill = transforms(z["prefill_counts"])
        prefill |= {"gate-prob": z["gate_prob_sum"].astype(np.float64), "gate-logit": z["gate_logit_mean"].astype(np.float64)}
        steps = z["decode_steps"].astype(np.float64)
        out[name] = {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "requests": len(steps),
            "pairs": len(steps) * (len(steps) - 1) // 2,
            "transforms": quality_of(prefill, z["decode_counts"].astype(np.float64), steps, ["count", "count-idf"]),
        }
    return out


def write(name: str, value: dict) -> None:
    """One line for each case or list, so that a change shows as few lines in a diff."""

    def lines(v, indent: str) -> str:
        inner = indent + " "
        if isinstance(v, dict) and (indent == "" or len(json.dumps(v)) > 300):
            return "{\n" + ",\n".join(f"{inner}{json.dumps(k)}: {lines(x, inner)}" for k, x in v.items()) + f"\n{indent}}}"
        if isinstance(v, list) and v and isinstance(v[0], dict):
            return "[\n" + ",\n".join(inner + json.dumps(x, ensure_ascii=False, allow_nan=False) for x in v) + f"\n{indent}]"
        return json.dumps(v, ensure_ascii=False, allow_nan=False)

    text = lines(value, "") + "\n"
    if name.endswith(".gz"):  # without a time, so that the same values give the same bytes
        (HERE / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        (HERE / name).write_text(text)
    print(f"{name}: {(HERE / name).stat().st_size:,} bytes")


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--traces", type=Path, default=TRACES, help="folder of the lab16 calibration traces")
    traces = args.parse_args().traces
    write("numerics.json.gz", numerics())
    if (traces / "lab16-task.calibration.safetensors").exists():
        write("lab16.json", lab16(traces))
    else:
        print("lab16.json left as it is: the lab16 traces are not in the folder given with --traces")


if __name__ == "__main__":
    main()
