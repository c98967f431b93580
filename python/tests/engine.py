"""A small engine that schedules as vLLM does: block pool with prefix caching and eviction, chunked prefill,
preemption, external loads, aborts, one or two steps in flight. A token's experts are a function of all tokens
up to it, as in a model, so the counts of a cold run are known without a store. The engine drives the
scheduler's and the worker's half of the plugin, with pickling in between."""

from __future__ import annotations

import pickle
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from eldr_vllm.handoff import HandOffs
from eldr_vllm.layout import Layout
from eldr_vllm.messages import StepCounts, StepMeta
from eldr_vllm.store import Array
from eldr_vllm.worker import Worker

LAYERS, EXPERTS, TOP_K = 3, 12, 2
Tokens = tuple[int, ...]


@cache
def experts_of(tokens: Tokens) -> Array:
    """Experts of the last of these tokens: [layers, top_k]."""
    rng = random.Random(hash(tokens))
    return np.array([rng.sample(range(EXPERTS), TOP_K) for _ in range(LAYERS)])


@dataclass
class Request:
    request_id: str
    prompt: Tokens
    new_tokens: int  # maximum number of generated tokens
    stops_at: int  # the request ends after this many, which the scheduler learns late
    kv_transfer_params: dict[str, Any] | None
    external: int = 0  # blocks after the prefix hits that another connector loads
    generated: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    loads_later: bool = False  # that load takes some steps
    loaded: bool = False
    started: bool = False
    ended: bool = False
    covered: list[int] | None = None  # positions known when its prompt ended
    result: dict[str, Any] | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt)

    @property
    def tokens(self) -> Tokens:
        return self.prompt + tuple(self.generated)


def new_request(request: Request) -> Any:
    return SimpleNamespace(req_id=request.request_id, block_ids=(list(request.blocks),), num_computed_tokens=request.num_computed_tokens)


class FakeCapture:
    """Replaces capture.Capture: the test scatters."""

    def __init__(self, store: Any) -> None:
        self.store, self.off = store, None

    def begin(self) -> None: ...

    def fail(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


class Engine:
    def __init__(
        self,
        seed: int,
        layout: Layout,
        make_store: Callable[[Layout], Any],
        budget: int,
        in_flight: int,
        stages: list[list[int]] | None = None,
    ) -> None:
        self.rng, self.layout, self.budget, self.in_flight = random.Random(seed), layout, budget, in_flight
        self.size = layout.block_size
        self.stages = stages or [list(range(LAYERS))]
        self.hand_offs = HandOffs(0, self.size, EXPERTS, TOP_K, len(self.stages), layout.half_life)
        self.workers = []
        for stage, layers in enumerate(self.stages):
            share = Layout(len(layers), EXPERTS, TOP_K, layout.blocks, self.size, layout.half_life)
            capture: Any = FakeCapture(make_store(share)) if layers else None
            self.workers.append(Worker(stage, layers, capture, None, None))
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, layout.blocks))  # block 0 is vLLM's null block
        self.references = dict.fromkeys(range(layout.blocks), 0)
        self.cached: dict[Tokens, int] = {}
        self.key_of: dict[int, Tokens] = {}
        self.computed_here: dict[int, set[int]] = {}
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.loading: list[Request] = []
        self.pending: deque[tuple[list[tuple[Request, int]], StepCounts | None]] = deque()
        self.seen = {"hits": 0, "evictions": 0, "preemptions": 0, "several_ends": 0, "external": 0, "loads": 0}

    # ---- blocks ----------------------------------------------------------------------------------------------

    def take_block(self) -> int | None:
        if not self.free:
            return None
        block, _ = self.free.popitem(last=False)
        if (key := self.key_of.pop(block, None)) is not None:
            del self.cached[key]
            self.seen["evictions"] += 1
        self.references[block] = 1
        self.computed_here[block] = set()
        return block

    def release(self, request: Request) -> None:
        for block in reversed(request.blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free[block] = None
                self.free.move_to_end(block, last=block in self.key_of)
        request.blocks = []

    def grow(self, request: Request, tokens: int) -> list[int] | None:
        needed = -(-tokens // self.size) - len(request.blocks)
        if needed > len(self.free):
            return None
        new = [block for _ in range(needed) if (block := self.take_block()) is not None]
        request.blocks.extend(new)
        return new

    def hash_full_blocks(self, request: Request, tokens: int) -> None:
        for at in range(tokens // self.size):
            key, block = request.tokens[: (at + 1) * self.size], request.blocks[at]
            if key not in self.cached and block not in self.key_of:
                self.cached[key], self.key_of[block] = block, key

    def hits(self, request: Request) -> list[int]:
        found: list[int] = []
        tokens = request.tokens
        for end in range(self.size, len(tokens), self.size):  # at most all but one token
            if (block := self.cached.get(tokens[:end])) is None:
                break
            found.append(block)
        return found

    # ---- a step ----------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        self.hand_offs.follow(request)
        self.waiting.append(request)

    def preempt(self) -> None:
        victim = self.running.pop()
        self.release(victim)
        victim.num_computed_tokens = 0
        self.waiting.appendleft(victim)
        self.seen["preemptions"] += 1

    def schedule(self) -> tuple[list[tuple[Request, int]], StepMeta]:
        left, scheduled = self.budget, dict[str, int]()
        new_reqs: list[Any] = []
        cached = SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set())
        chosen: list[tuple[Request, int]] = []
        for request in list(self.running):
            if request not in self.running or left == 0:
                continue
            # Never more than it may generate: the last token is not fed back.
            tokens = min(len(request.tokens) - request.num_computed_tokens, left)
            if tokens <= 0 or len(request.generated) >= request.new_tokens:
                continue
            while (new := self.grow(request, request.num_computed_tokens + tokens)) is None:
                last = self.running[-1]
                if last.request_id in scheduled:  # skip those that this step has already scheduled
                    break
                self.preempt()
                if last is request:
                    break
            if new is None:
                continue
            left -= tokens
            scheduled[request.request_id] = tokens
            cached.req_ids.append(request.request_id)
            cached.new_block_ids.append((new,) if new else None)
            cached.num_computed_tokens.append(request.num_computed_tokens)
            chosen.append((request, tokens))
        for request in [request for request in self.loading if self.rng.random() < 0.5]:
            self.loading.remove(request)
            self.hash_full_blocks(request, request.num_computed_tokens)
            request.loaded = True
            self.waiting.appendleft(request)
        self.waiting = deque(sorted(self.waiting, key=lambda request: not request.loaded))  # requests that hold blocks come first
        while self.waiting and left > 0:
            request = self.waiting[0]
            if request.loaded:  # its blocks are loaded; it is admitted a second time, without a search for prefix hits
                tokens = min(len(request.tokens) - request.num_computed_tokens, left)
                if self.grow(request, request.num_computed_tokens + tokens) is None:
                    break
                request.loaded = False
                self.waiting.popleft()
                self.hand_offs.admitted(request, request.blocks)
                left -= tokens
                scheduled[request.request_id] = tokens
                new_reqs.append(new_request(request))
                request.started = True
                self.running.append(request)
                chosen.append((request, tokens))
                continue
            hit = self.hits(request)
            local = len(hit) * self.size
            external = 0
            # One load at a time: several requests that hold blocks and wait for more could deadlock.
            if not request.started and not self.loading and not any(other.loaded for other in self.waiting):
                room = (len(request.prompt) - 1) // self.size - len(hit)
                external = max(0, min(request.external, room)) * self.size
            tokens = min(len(request.tokens) - local - external, left)
            self.hand_offs.found_locally(request.request_id, local)
            for block in hit:
                if self.references[block] == 0:
                    del self.free[block]
                self.references[block] += 1
            request.blocks = list(hit)
            if self.grow(request, local + external + tokens) is None:
                self.release(request)
                break
            self.seen["hits"] += bool(hit)
            self.seen["external"] += bool(external)
            self.waiting.popleft()
            if external and request.loads_later:
                for block in request.blocks[(local + external) // self.size :]:
                    self.references[block] = 0
                    self.free[block] = None
                request.blocks = request.blocks[: (local + external) // self.size]
                self.seen["loads"] += 1
            self.hand_offs.admitted(request, request.blocks)
            request.num_computed_tokens = local + external
            if external and request.loads_later:
                self.loading.append(request)
                continue
            left -= tokens
            scheduled[request.request_id] = tokens
            if request.started:
                cached.req_ids.append(request.request_id)
                cached.new_block_ids.append((list(request.blocks),))
                cached.num_computed_tokens.append(request.num_computed_tokens)
                cached.resumed_req_ids.add(request.request_id)
            else:
                new_reqs.append(new_request(request))
            request.started = True
            self.running.append(request)
            chosen.append((request, tokens))
            self.hash_full_blocks(request, request.num_computed_tokens + tokens)
        for request, tokens in chosen:
            self.hash_full_blocks(request, request.num_computed_tokens + tokens)
        out = SimpleNamespace(
            total_num_scheduled_tokens=sum(scheduled.values()),
            num_scheduled_tokens=scheduled,
            scheduled_new_reqs=new_reqs,
            scheduled_cached_reqs=cached,
        )
        meta = self.hand_offs.step(out)
        self.seen["several_ends"] += len(meta.ends) > 1
        return chosen, pickle.loads(pickle.dumps(meta))

    def execute(self, chosen: list[tuple[Request, int]], meta: StepMeta) -> StepCounts | None:
        rows: list[tuple[int, Array]] = []
        for request, tokens in chosen:
            for position in range(request.num_computed_tokens, request.num_computed_tokens + tokens):
                block = request.blocks[position // self.size]
                self.computed_here[block].add(position % self.size)
                rows.append((block * self.size + position % self.size, experts_of(request.tokens[: position + 1])))
        self.rng.shuffle(rows)  # the worker may order its batch in any way
        rows += [(-1, np.full((LAYERS, TOP_K), EXPERTS - 1))] * self.rng.randrange(3)
        merged: StepCounts | None = None
        for worker, layers in zip(self.workers, self.stages, strict=True):
            worker.begin(meta)
            if worker.capture is not None and rows:
                slots = np.array([slot for slot, _ in rows])
                store: Any = worker.capture.store
                store.scatter(slots, np.stack([ids[layers] for _, ids in rows]))
            counts = worker.answer(meta)
            if counts is not None:
                merged = counts if merged is None else merged.aggregate(counts)
        for request, tokens in chosen:
            done = request.num_computed_tokens + tokens
            if request.covered is None and request.num_computed_tokens < len(request.prompt) <= done:
                request.covered = [
                    p for p in range(len(request.prompt)) if p % self.size in self.computed_here[request.blocks[p // self.size]]
                ]
        return None if merged is None else pickle.loads(pickle.dumps(merged))

    def step(self) -> None:
        chosen, meta = self.schedule()
        counts = self.execute(chosen, meta)
        for request, tokens in chosen:
            request.num_computed_tokens += tokens
            if request.num_computed_tokens == len(request.tokens):
                request.generated.append(random.Random(hash(request.tokens)).randrange(50))
        self.pending.append(([(request, len(request.generated)) for request, _ in chosen], counts))
        while len(self.pending) >= self.in_flight or (self.pending and not chosen):
            self.update(*self.pending.popleft())

    def update(self, chosen: list[tuple[Request, int]], counts: StepCounts | None) -> None:
        """chosen: with the number of tokens each had generated after that step; later ones are still in flight."""
        for request, generated in chosen:
            if not request.ended and request in self.running and generated >= min(request.stops_at, request.new_tokens):
                self.running.remove(request)
                request.generated = request.generated[:generated]
                self.end(request, aborted=False)
        self.hand_offs.received(counts)

    def abort(self, request: Request) -> None:
        next(queue for queue in (self.running, self.waiting, self.loading) if request in queue).remove(request)
        self.end(request, aborted=True)

    def end(self, request: Request, aborted: bool) -> None:
        request.ended = True
        request.result = self.hand_offs.finished(request, aborted)
        self.release(request)
