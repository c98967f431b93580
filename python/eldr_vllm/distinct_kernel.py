"""Distinct experts of a step, in one launch that may be recorded in a CUDA graph: those of its requests, and
those of all rows, with the rows that pad a batch to the size of a graph."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_TOKENS = 64


@triton.jit(do_not_specialize=["rows", "first", "tokens", "known_slots"])
def _distinct(
    ids, slots, out, rows, first, tokens, known_slots, experts,
    TOP_K: tl.constexpr, K: tl.constexpr, BINS: tl.constexpr, TOKENS: tl.constexpr, PADDING: tl.constexpr,
):  # fmt: skip
    layer = tl.program_id(0)
    rank = tl.arange(0, K)
    of_requests = tl.zeros([BINS], tl.int32)
    of_all = tl.zeros([BINS], tl.int32)
    for start in range(0, tokens, TOKENS):
        token = start + tl.arange(0, TOKENS)
        real = tl.load(slots + token, mask=token < known_slots, other=-1) >= 0
        here = (token < tokens)[:, None] & (rank < TOP_K)[None, :]
        expert = tl.load(ids + (layer * rows + first + token)[:, None] * TOP_K + rank[None, :], mask=here, other=0).to(tl.int32)
        here = here & (expert >= 0) & (expert < experts)
        flat = tl.reshape(tl.where(here & real[:, None], expert, experts), [TOKENS * K])
        of_requests += tl.histogram(flat, BINS)
        if PADDING:
            of_all += tl.histogram(tl.reshape(tl.where(here, expert, experts), [TOKENS * K]), BINS)
    is_expert = tl.arange(0, BINS) < experts  # the bin after them takes what is not counted
    used = tl.sum(((of_requests > 0) & is_expert).to(tl.int32))
    tl.store(out + 2 * layer, used)
    if PADDING:
        used = tl.sum(((of_all > 0) & is_expert).to(tl.int32))
    tl.store(out + 2 * layer + 1, used)


def distinct(
    ids: Any, slots: Any, out: Any, layers: int, experts: int, top_k: int, rows: int, first: int, tokens: int, padding_runs: bool
) -> None:
    """ids: [layers · rows, top_k], of which `tokens` rows from `first` are this worker's, padding included.
    slots: negative, or missing at the end, for padding. out: [layers, 2]. padding_runs: the engine's kernels
    compute the rows of padding too."""
    _distinct[(layers,)](
        ids, slots, out, rows, first, tokens, min(tokens, slots.shape[0]), experts,
        TOP_K=top_k, K=triton.next_power_of_2(top_k), BINS=triton.next_power_of_2(experts + 1), TOKENS=_TOKENS,
        PADDING=padding_runs, num_warps=4,
    )  # fmt: skip
