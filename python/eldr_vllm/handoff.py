"""The scheduler's half: tracks requests and their blocks, tells the workers which prompts end, and fills the
hand-offs.

vLLM calls `request_finished`, which returns the `kv_transfer_params` of the response, before it calls
`update_connector_output` with what the workers counted in the same step. So `finished` returns a dictionary
that `received` fills shortly afterwards, before vLLM sends the response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import joined, wire
from .messages import EMPTY_STEP, Counted, Part, StepCounts, StepMeta
from .store import Array, End

OFF_LATE = "no counts came with the step that ended the prompt"


@dataclass(slots=True)
class Followed:
    """A request that wants counts."""

    request: Any
    records: bool
    blocks: list[int] = field(default_factory=list)
    asked: bool = False  # whether its sums were requested: once, when its prompt first ends
    counted: Counted | str | None = None  # a string says why there are none
    decode: dict[int, Array] = field(default_factory=dict)  # ids by position


class HandOffs:
    def __init__(
        self,
        group: int,
        block_size: int,
        experts: int,
        top_k: int,
        stages: int = 1,
        half_life: float | None = None,
        can_record: bool = True,
    ) -> None:
        self.group, self.block_size, self.experts, self.top_k, self.stages = group, block_size, experts, top_k, stages
        self.half_life, self.can_record = half_life, can_record
        self.off: str | None = None
        self.on_off: Callable[[str], None] = lambda reason: None
        self._followed: dict[str, Followed] = {}
        self._held: dict[str, tuple[int, int]] = {}  # by request: tokens of its prefix hits here, and the blocks that it has
        self._new: dict[str, list[int]] = {}  # by request: blocks that it got since the last step
        self._waiting: dict[str, tuple[Followed, dict[str, Any]]] = {}

    # ---- before the step -------------------------------------------------------------------------

    def follow(self, request: Any) -> None:
        """May be called again for the same request."""
        rid = request.request_id
        if rid in self._followed:
            return
        wants, records = _wanted(request.kv_transfer_params)
        if wants:
            self._followed[rid] = Followed(request, records)

    def found_locally(self, rid: str, tokens: int) -> None:
        self._held[rid] = tokens, tokens // self.block_size

    def admitted(self, request: Any, blocks: Sequence[int]) -> None:
        """blocks: all blocks that the request has now. Those after its prefix hits in this worker's cache are
        new. After another connector has loaded some of them, vLLM admits the request again, with more blocks."""
        self.follow(request)
        rid = request.request_id
        found, held = self._held.get(rid, (0, 0))
        self._new.setdefault(rid, []).extend(blocks[held:])
        self._held[rid] = found, len(blocks)

    def step(self, out: Any) -> StepMeta:
        """out: vLLM's SchedulerOutput, before vLLM advances num_computed_tokens of the requests."""
        tokens: int = out.total_num_scheduled_tokens
        copies = getattr(out, "kv_cache_block_copies", None)
        if tokens == 0 and not self._new and not copies:
            return EMPTY_STEP
        meta = StepMeta(tokens=tokens)
        scheduled: dict[str, int] = out.num_scheduled_tokens
        meta.decode_batch = decode_batch(out)
        for new in out.scheduled_new_reqs:
            self._begins(new.req_id, new.num_computed_tokens, new.block_ids)
        cached = out.scheduled_cached_reqs
        for rid, blocks, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            if blocks is None:
                continue
            if rid in cached.resumed_req_ids:
                self._begins(rid, computed, blocks)
                continue
            found, held = self._held.get(rid, (0, 0))
            self._held[rid] = found, held + len(blocks[self.group])
            if (followed := self._followed.get(rid)) is not None:
                followed.blocks.extend(blocks[self.group])
        if self._new:  # of requests that load KV before they begin, or that loaded some
            meta.unknown = [block for blocks in self._new.values() for block in blocks]
            self._new = {}
        if copies:
            meta.copies = [_pair(copy) for copy in copies]
        if self._followed:
            self._ask(scheduled, meta)
        return meta

    def _begins(self, rid: str, computed: int, blocks: Any) -> None:
        """A request is in a step for the first time, or again after a preemption. If nothing but its prefix hits has
        been computed, every token of its new blocks will be computed here before it is read."""
        if computed <= self._held.get(rid, (0, 0))[0]:
            self._new.pop(rid, None)
        if (followed := self._followed.get(rid)) is not None:
            followed.blocks = list(blocks[self.group])

    def _ask(self, scheduled: dict[str, int], meta: StepMeta) -> None:
        for rid, tokens in scheduled.items():
            followed = self._followed.get(rid)
            if followed is None:
                continue
            request = followed.request
            prompt, done = request.num_prompt_tokens, request.num_computed_tokens
            if not followed.asked and done < prompt <= done + tokens:
                followed.asked = True
                meta.ends[rid] = End(followed.blocks[: -(-prompt // self.block_size)], prompt)
            if followed.records and self.can_record:
                at = range(max(done, prompt), done + tokens)
                slots = [(p, followed.blocks[p // self.block_size] * self.block_size + p % self.block_size) for p in at]
                if slots:
                    meta.records[rid] = slots

    # ---- after the step --------------------------------------------------------------------------

    def finished(self, request: Any, aborted: bool) -> dict[str, Any] | None:
        """Returns the `kv_transfer_params` of the response, filled now if the counts are complete, otherwise
        in `received`."""
        rid = request.request_id
        self._held.pop(rid, None)
        followed = self._followed.pop(rid, None)
        if followed is None or aborted:
            return None
        inner: dict[str, Any] = {}
        self._waiting[rid] = (followed, inner)
        if followed.counted is not None and not followed.records:
            self._fill(rid)
        return {"eldr": inner}

    def received(self, counts: StepCounts | None) -> None:
        if counts is not None:
            if counts.off is not None:
                self.switch_off(counts.off)
            self._take(counts.parts)
        for rid in list(self._waiting):  # never later than the step that finished the request
            self._fill(rid)

    def switch_off(self, reason: str) -> None:
        if self.off is None:
            self.off = reason
            self.on_off(reason)

    def give_up(self) -> None:
        """After a failure: tells all waiting requests why there are no counts, and drops all state."""
        for _, inner in self._waiting.values():
            inner["off"] = self.off or OFF_LATE
        self._waiting.clear()
        self._held.clear()
        self._new = {}

    def excuse(self, request: Any) -> dict[str, Any] | None:
        """`kv_transfer_params` that say why capture is off, if the request wanted counts."""
        self._followed.pop(request.request_id, None)
        wanted = self.off is not None and _wanted(request.kv_transfer_params)[0]
        return {"eldr": {"off": self.off}} if wanted else None

    def _of(self, rid: str) -> Followed | None:
        if (followed := self._followed.get(rid)) is not None:
            return followed
        return self._waiting[rid][0] if rid in self._waiting else None

    def _take(self, parts: dict[int, Part]) -> None:
        if not parts:
            return
        ordered = [parts[stage] for stage in sorted(parts)]
        names = {rid for part in ordered for rid in part.requests}
        if names and len(ordered) < self.stages:
            for rid in names:
                if (followed := self._of(rid)) is not None:
                    followed.counted = f"{len(ordered)} of {self.stages} pipeline stages reported"
            return
        ordered.sort(key=lambda part: part.layers)  # stages in order of their layers; stages without layers come first
        for rid, counted in joined.counts(ordered).items():
            if (followed := self._of(rid)) is not None:
                followed.counted = counted
        for (rid, position), ids in joined.records(ordered).items():
            if (followed := self._of(rid)) is not None:
                followed.decode[position] = ids

    def _fill(self, rid: str) -> None:
        followed, inner = self._waiting.pop(rid)
        counted = followed.counted
        if self.off is not None or counted is None or isinstance(counted, str):
            inner["off"] = self.off or counted or OFF_LATE
            return
        tokens = followed.request.num_prompt_tokens
        inner.update(
            wire.encode(
                wire.Captured(self.top_k, tokens, counted.covered, counted.counts, counted.recent, self.half_life)
                if counted.recent is not None
                else wire.Captured(self.top_k, tokens, counted.covered, counted.counts)
            )
        )
        if not followed.records:
            return
        if not self.can_record:
            inner["decode_off"] = "decode ids are not kept with speculative decoding"
            return
        steps: list[Array] = []
        while (ids := followed.decode.get(tokens + len(steps))) is not None:
            steps.append(ids)
        layers = counted.counts.shape[0]
        rows = np.stack(steps) if steps else np.zeros((0, layers, self.top_k), np.uint8)
        inner["decode"] = wire.encode_decode(rows, self.experts)


def _wanted(params: Any) -> tuple[bool, bool]:
    """Whether a request wants counts, and whether it wants decode ids."""
    if not isinstance(params, dict):
        return False, False
    ours = params.get("eldr")
    records = isinstance(ours, dict) and ours.get("record") == "decode"
    return bool(params.get("do_remote_decode")) or records, records


def decode_batch(out: Any) -> int:
    """Requests of a step in which each computes one token, and those that speculative decoding has drafted; otherwise
    0. A step with one token of a prompt looks the same."""
    requests = len(out.num_scheduled_tokens)
    drafts = sum(map(len, (getattr(out, "scheduled_spec_decode_tokens", None) or {}).values()))
    return requests if out.total_num_scheduled_tokens - drafts == requests else 0


def _pair(copy: Any) -> tuple[int, int]:
    """Source and target of a copy-on-write of a partly shared block. vLLM does not say which KV group the
    block belongs to. All groups take ids from one pool, so an id belongs to one group at a time. Copying the
    row of another group's block is harmless: no sum reads it before the block is allocated again."""
    source = getattr(copy, "src_block_id", None)
    target = getattr(copy, "dst_block_id", None)
    if source is None or target is None:
        raise ValueError(f"a block copy of unknown form: {copy!r}")
    return int(source), int(target)
