"""A small simulator of decode workers to check ELDR's simulator. It follows the description below, shares no code with src/sim and is
not a translation of it. One run of one policy.

usage: simulator.py REQUESTS.json --trace EVALUATION --profile PROFILE.json [--policy jsq|band] [--artifact FILE] [--tau 0.1]
                    [--workers 16] [--seed 0] [--json]

REQUESTS.json has `arrivals_us` (increasing) and `requests` (the trace's request for each arrival). What is simulated:

- A request arrives with prefill done, is sent to a worker immediately and stays there.
- A worker decodes in steps; each step generates one token for each request of its batch. A request that arrives during a step joins
  when the step ends; on an idle worker a step begins immediately. At the end of a step finished requests leave, waiting requests join in
  order of arrival while the batch has fewer than 256, and the next step begins at once.
- The n-th step of a request activates the experts that the trace recorded for its n-th decode step. A step takes
  base + perRequest·batch + layers·(perLayer + perActiveExpert·active): active is the number of distinct experts that the batch activates
  in a layer, averaged over the profile's layers; profile layer l uses layer ⌊l·L/layers⌋ of the trace's L layers.
- jsq: the worker with the fewest requests, waiting or decoding; ties are broken at random, by this program's own generator.
- band: among workers whose centroid is within tau of the best cosine to the request's signature, the one with the fewest requests; ties
  go to the more similar one. Signatures are computed here from the prompt's raw counts with the artifact's layer mask and weights.

What is measured: the first 15 % and the last 10 % of the requests are left out. TPOT of a request is the time from its first to its last
decode token, divided by the tokens between. Steps count if they end after the first measured request arrives and before the first
request after the measured ones arrives; means weigh a step by its tokens."""

import argparse
import heapq
import json
import math
import time
from collections import deque

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

MAX_BATCH = 256
SHAPES = {"count": lambda x: x, "count-idf": lambda x: x, "sqrt": np.sqrt, "binary": lambda x: (x > 0).astype(np.float64)}


class Jsq:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def pick(self, _: int, load: np.ndarray) -> int:
        return int(self.rng.choice(np.flatnonzero(load == load.min())))


class Eldr:
    def __init__(self, artifact: str, prefill_counts: np.ndarray, tau: float):
        tensors = load_file(artifact)
        transform = safe_open(artifact, "np").metadata()["transform"]
        if transform not in SHAPES:
            raise SystemExit(f"{artifact} was fitted with {transform}, which does not read plain counts")
        kept = np.flatnonzero(tensors["layer_mask"])
        vectors = SHAPES[transform](prefill_counts[:, kept].astype(np.float64)) * tensors["weights"]
        vectors = vectors.reshape(len(vectors), -1)
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        if (length == 0).any():
            raise SystemExit("a request has no counts in the kept layers")
        centroids = tensors["centroids"].reshape(len(tensors["centroids"]), -1).astype(np.float64)
        self.similarity = vectors / length @ centroids.T  # [requests of the trace × workers]
        self.tau = tau

    def pick(self, request: int, load: np.ndarray) -> int:
        similarity = self.similarity[request]
        band = np.flatnonzero(similarity >= similarity.max() - self.tau)
        return int(min(band, key=lambda worker: (load[worker], -similarity[worker])))


class Worker:
    def __init__(self):
        self.waiting = deque()
        self.batch = np.empty(0, dtype=np.int64)  # numbers of requests, in order of arrival
        self.busy = False
        self.active = 0.0


class Cluster:
    def __init__(self, workload: dict, trace: dict, profile: dict, workers: int, policy):
        self.arrivals = workload["arrivals_us"]
        self.request = np.array(workload["requests"])
        self.ids = trace["decode_expert_ids"]  # [requests, steps, layers, k]
        self.tokens = trace["decode_steps"].astype(np.int64)[self.request]
        self.prompt = trace["prompt_tokens"].astype(np.int64)[self.request]
        self.layers, self.experts = trace["prefill_counts"].shape[1:]
        self.profile = profile
        total = profile["shape"]["layers"]
        self.stands_on = np.arange(total) * self.layers // total
        self.policy = policy
        self.workers = [Worker() for _ in range(workers)]
        self.load = np.zeros(workers, dtype=np.int64)
        self.worker_of = np.zeros(len(self.request), dtype=np.int64)
        self.made = np.zeros(len(self.request), dtype=np.int64)
        self.first_us = np.full(len(self.request), math.nan)
        self.last_us = np.full(len(self.request), math.nan)
        self.steps = []  # (when it ended, batch, active)
        self.ends = []  # heap of (when a step ends, worker)

    def begin_step(self, number: int, now: float) -> None:
        worker = self.workers[number]
        joining = []
        while worker.waiting and len(worker.batch) + len(joining) < MAX_BATCH:
            joining.append(worker.waiting.popleft())
        worker.batch = np.concatenate([worker.batch, np.array(joining, dtype=np.int64)])
        worker.busy = len(worker.batch) > 0
        if not worker.busy:
            return
        made = self.made[worker.batch]
        if (self.prompt[worker.batch] + made + 1).sum() > self.profile["kv"]["capacityTokens"]:
            raise SystemExit("the KV cache is full; preemption is not simulated here")
        fired = np.zeros((self.layers, self.experts), dtype=bool)
        fired[np.arange(self.layers)[None, :, None], self.ids[self.request[worker.batch], made]] = True
        worker.active = float(fired.sum(axis=1)[self.stands_on].mean())
        cost = self.profile["decode"]
        experts_us = self.profile["shape"]["layers"] * (cost["perLayerUs"] + cost["perActiveExpertUs"] * worker.active)
        context = (self.prompt[worker.batch] + made + 1).sum() / 1000 * cost["perContextKTokenUs"]
        heapq.heappush(self.ends, (now + cost["baseUs"] + cost["perRequestUs"] * len(worker.batch) + experts_us + context, number))

    def end_step(self, number: int, now: float) -> None:
        worker = self.workers[number]
        self.steps.append((now, len(worker.batch), worker.active))
        self.made[worker.batch] += 1
        made = self.made[worker.batch]
        self.first_us[worker.batch[made == 1]] = now
        done = made == self.tokens[worker.batch]
        self.last_us[worker.batch[done]] = now
        self.load[number] -= done.sum()
        worker.batch = worker.batch[~done]

    def arrive(self, index: int, now: float) -> None:
        number = self.policy.pick(int(self.request[index]), self.load)
        self.load[number] += 1
        self.workers[number].waiting.append(index)
        if not self.workers[number].busy:
            self.begin_step(number, now)

    def run(self) -> dict:
        index = 0
        while index < len(self.arrivals) or self.ends:
            if not self.ends or (index < len(self.arrivals) and self.arrivals[index] < self.ends[0][0]):
                self.arrive(index, self.arrivals[index])
                index += 1
                continue
            now, number = heapq.heappop(self.ends)
            self.end_step(number, now)
            self.begin_step(number, now)
        return self.measured()

    def measured(self) -> dict:
        requests = len(self.request)
        first, end = math.floor(requests * 0.15), math.ceil(requests * 0.9)
        inside = slice(first, end)
        several = self.tokens[inside] > 1
        tpot = (self.last_us[inside] - self.first_us[inside])[several] / (self.tokens[inside][several] - 1) / 1e3
        ended, batch, active = np.array(self.steps).T
        counted = (ended >= self.arrivals[first]) & (ended < self.arrivals[end])
        batch, active = batch[counted], active[counted]
        return {
            "p50TpotMs": float(np.quantile(tpot, 0.5)),
            "p99TpotMs": float(np.quantile(tpot, 0.99)),
            "meanTpotMs": float(tpot.mean()),
            "activeExperts": float((active * batch).sum() / batch.sum()),
            "batch": float((batch * batch).sum() / batch.sum()),
        }


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("requests")
    args.add_argument("--trace", required=True)
    args.add_argument("--profile", required=True)
    args.add_argument("--policy", choices=["jsq", "band"], default="jsq")
    args.add_argument("--artifact")
    args.add_argument("--tau", type=float, default=0.1)
    args.add_argument("--workers", type=int, default=16)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--json", action="store_true")
    o = args.parse_args()
    with open(o.requests) as file:
        workload = json.load(file)
    with open(o.profile) as file:
        profile = json.load(file)
    if profile["decode"].get("windows"):
        raise SystemExit(f"{o.profile} has sliding windows, which are not simulated here")
    trace = load_file(o.trace)
    policy = Jsq(o.seed) if o.policy == "jsq" else Eldr(o.artifact, trace["prefill_counts"], o.tau)
    start = time.perf_counter()
    result = Cluster(workload, trace, profile, o.workers, policy).run()
    result["seconds"] = time.perf_counter() - start
    if o.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:16s} {value:10.4f}")


if __name__ == "__main__":
    main()
