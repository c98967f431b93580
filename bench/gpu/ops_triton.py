"""The operations of a decode step as in an engine: a few fused Triton kernels, cuBLAS and torch's grouped GEMM (CUTLASS) around
them. Same functions as ops_torch.py, which they are compared with. All of them run inside a CUDA graph: shapes depend on the batch alone;
experts, contexts and pages are read from device memory. Here norms and the MoE part; attention is in attention_triton.py."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from attention_triton import paged_attention, prefill_attention, rope_cache

__all__ = ["activate", "add_norm", "combine", "gather", "grouped", "norm", "norm_sum", "paged_attention", "prefill_attention",
           "rope_cache", "route"]  # fmt: skip

EPS = 1e-6
ACTIVATIONS = {"silu": 0, "gelu": 1, "swiglu_clamped": 2}


def _pow2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


@triton.jit
def _norm_kernel(X, R, W, POST, OUT, H, eps, ADD: tl.constexpr, HAS_POST: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    ok = c < H
    x = tl.load(X + t * H + c, mask=ok, other=0.0).to(tl.float32)
    if ADD:
        if HAS_POST:
            x = x * tl.rsqrt(tl.sum(x * x, 0) / H + eps) * tl.load(POST + c, mask=ok, other=0.0).to(tl.float32)
            x = x.to(OUT.dtype.element_ty).to(tl.float32)
        x = (x + tl.load(R + t * H + c, mask=ok, other=0.0).to(tl.float32)).to(OUT.dtype.element_ty)
        tl.store(R + t * H + c, x, mask=ok)
        x = x.to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / H + eps) * tl.load(W + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(OUT + t * H + c, y.to(OUT.dtype.element_ty), mask=ok)


@triton.jit
def _norm_sum_kernel(A, B, WA, WB, OUT, H, eps, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    ok = c < H
    a = tl.load(A + t * H + c, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(B + t * H + c, mask=ok, other=0.0).to(tl.float32)
    a = a * tl.rsqrt(tl.sum(a * a, 0) / H + eps) * tl.load(WA + c, mask=ok, other=0.0).to(tl.float32)
    b = b * tl.rsqrt(tl.sum(b * b, 0) / H + eps) * tl.load(WB + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(OUT + t * H + c, (a + b).to(OUT.dtype.element_ty), mask=ok)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _norm_kernel[(x.shape[0],)](x, x, weight, weight, out, x.shape[1], EPS, False, False, _pow2(x.shape[1]), num_warps=8)
    return out


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, post: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x)
    p = weight if post is None else post
    _norm_kernel[(x.shape[0],)](x, residual, weight, p, out, x.shape[1], EPS, True, post is not None, _pow2(x.shape[1]), num_warps=8)
    return out


def norm_sum(a: Tensor, b: Tensor, wa: Tensor, wb: Tensor) -> Tensor:
    out = torch.empty_like(a)
    _norm_sum_kernel[(a.shape[0],)](a, b, wa, wb, out, a.shape[1], EPS, _pow2(a.shape[1]), num_warps=8)
    return out


@triton.jit
def _route_kernel(LOGITS, GIVEN, COUNTS, WEIGHT, OWN, RANK, E, EP: tl.constexpr, TOP: tl.constexpr, KP: tl.constexpr):
    t = tl.program_id(0)
    e = tl.arange(0, EP)
    j = tl.arange(0, KP)
    x = tl.load(LOGITS + t * E + e, mask=e < E, other=float("-inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))
    p = p / tl.sum(p, 0)
    w = tl.zeros([KP], tl.float32)
    own = tl.zeros([KP], tl.int32)
    for i in tl.static_range(TOP):
        best = tl.argmax(p, 0)
        w = tl.where(j == i, tl.max(p, 0), w)
        own = tl.where(j == i, best, own)
        p = tl.where(e == best, -1.0, p)
    ok = j < TOP
    tl.store(WEIGHT + t * TOP + j, w / tl.sum(w, 0), mask=ok)
    tl.store(OWN + t * TOP + j, own, mask=ok)  # the gate's own choice: paid for, not used
    given = tl.load(GIVEN + t * TOP + j, mask=ok, other=0)
    tl.store(RANK + t * TOP + j, tl.atomic_add(COUNTS + given, 1, mask=ok), mask=ok)


def route(logits: Tensor, given: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    t, top = given.shape
    weights = torch.empty(t, top, dtype=torch.float32, device=logits.device)
    own, rank = torch.empty_like(given), torch.empty_like(given)
    e = logits.shape[1]
    _route_kernel[(t,)](logits, given, counts, weights, own, rank, e, _pow2(e), top, _pow2(top), num_warps=1)
    return weights, rank


@triton.jit
def _gather_kernel(X, GIVEN, RANK, COUNTS, ROWS, ROW, EXPERT, ENDS, H, E, TOP: tl.constexpr, EP: tl.constexpr, BLOCK: tl.constexpr):
    pair = tl.program_id(0)
    e = tl.arange(0, EP)
    counts = tl.load(COUNTS + e, mask=e < E, other=0)
    mine = tl.load(GIVEN + pair)
    row = tl.sum(tl.where(e < mine, counts, 0), 0) + tl.load(RANK + pair)
    tl.store(ROW + pair, row)
    tl.store(EXPERT + row, mine)
    if pair == 0:
        tl.store(ENDS + e, tl.cumsum(counts, 0), mask=e < E)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + (pair // TOP).to(tl.int64) * H + c, mask=c < H)
    tl.store(ROWS + row.to(tl.int64) * H + c, x, mask=c < H)


def gather(x: Tensor, given: Tensor, rank: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pairs = given.numel()
    rows = torch.empty(pairs, x.shape[1], dtype=x.dtype, device=x.device)
    row = torch.empty_like(given)
    expert = torch.empty(pairs, dtype=torch.int32, device=x.device)
    e = counts.shape[0]
    ends = torch.empty(e, dtype=torch.int32, device=x.device)
    _gather_kernel[(pairs,)](
        x, given, rank, counts, rows, row, expert, ends, x.shape[1], e, given.shape[1], _pow2(e), _pow2(x.shape[1]), num_warps=4
    )
    return rows, row, expert, ends


def grouped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    if not x.is_cuda:  # the interpreter's tests
        import ops_torch

        return ops_torch.grouped(x, weight, ends)
    if hasattr(F, "grouped_mm"):
        return F.grouped_mm(x, weight.transpose(-2, -1), offs=ends)
    return torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)


@triton.jit
def _activate_kernel(X, BIAS, EXPERT, OUT, N, KIND: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = c < N
    gate = tl.load(X + r * 2 * N + c, mask=ok, other=0.0).to(tl.float32)
    up = tl.load(X + r * 2 * N + N + c, mask=ok, other=0.0).to(tl.float32)
    if HAS_BIAS:
        e = tl.load(EXPERT + r).to(tl.int64)
        gate += tl.load(BIAS + e * 2 * N + c, mask=ok, other=0.0).to(tl.float32)
        up += tl.load(BIAS + e * 2 * N + N + c, mask=ok, other=0.0).to(tl.float32)
    if KIND == 0:
        y = gate * tl.sigmoid(gate) * up
    elif KIND == 1:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        y = gate * tl.sigmoid(2.0 * inner) * up  # 0.5·(1 + tanh z) = sigmoid(2z)
    else:
        gate = tl.minimum(gate, 7.0)
        up = tl.minimum(tl.maximum(up, -7.0), 7.0)
        y = gate * tl.sigmoid(1.702 * gate) * (up + 1.0)
    tl.store(OUT + r * N + c, y.to(OUT.dtype.element_ty), mask=ok)


def activate(h: Tensor, kind: str, bias: Tensor | None = None, expert: Tensor | None = None) -> Tensor:
    n = h.shape[1] // 2
    out = torch.empty(h.shape[0], n, dtype=h.dtype, device=h.device)
    e = h if expert is None else expert
    _activate_kernel[(h.shape[0], triton.cdiv(n, 512))](
        h, h if bias is None else bias, e, out, n, ACTIVATIONS[kind], bias is not None, 512, num_warps=4
    )
    return out


@triton.jit
def _combine_kernel(Y, ROW, WEIGHT, BIAS, EXPERT, OUT, H, TOP: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = c < H
    acc = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(TOP):
        row = tl.load(ROW + t * TOP + j).to(tl.int64)
        y = tl.load(Y + row * H + c, mask=ok, other=0.0).to(tl.float32)
        if HAS_BIAS:
            e = tl.load(EXPERT + row).to(tl.int64)
            y += tl.load(BIAS + e * H + c, mask=ok, other=0.0).to(tl.float32)
        acc += y * tl.load(WEIGHT + t * TOP + j)
    tl.store(OUT + t.to(tl.int64) * H + c, acc.to(OUT.dtype.element_ty), mask=ok)


def combine(y: Tensor, row: Tensor, weights: Tensor, bias: Tensor | None = None, expert: Tensor | None = None) -> Tensor:
    t, top = row.shape
    h = y.shape[1]
    out = torch.empty(t, h, dtype=y.dtype, device=y.device)
    e = row if expert is None else expert
    _combine_kernel[(t, triton.cdiv(h, 512))](
        y, row, weights, y if bias is None else bias, e, out, h, top, bias is not None, 512, num_warps=4
    )
    return out
