"""The operations of a decode step in plain torch: slow and simple. Used on a CPU in dry runs, and the kernels of ops_triton.py are
compared with them before anything is timed. Arithmetic is float32; results are rounded to the type of the input."""

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-6


def _rms(x: Tensor, weight: Tensor | None) -> Tensor:
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPS)
    return y if weight is None else y * weight.float()


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return _rms(x, weight).to(x.dtype)


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, post: Tensor | None = None) -> Tensor:
    """residual += x (normed by `post` where the model has it), in place; gives the norm of the new residual."""
    y = x if post is None else norm(x, post)
    residual.copy_((residual.float() + y.float()).to(residual.dtype))
    return norm(residual, weight)


def norm_sum(a: Tensor, b: Tensor, wa: Tensor, wb: Tensor) -> Tensor:
    """norm(a) + norm(b): where Gemma's dense and routed paths meet."""
    return (_rms(a, wa) + _rms(b, wb)).to(a.dtype)


def rope_cache(
    qkv: Tensor,
    heads: int,
    kv_heads: int,
    dim: int,
    shared_kv: bool,
    norms: tuple[Tensor | None, Tensor | None, bool],
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    keep_kv: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Norms of q, k and v, rotary, and the new token's K and V into the pages. Caches are [pages, kv_heads, page, dim]."""
    t = qkv.shape[0]
    q_norm, k_norm, v_norm = norms
    q = qkv[:, : heads * dim].view(t, heads, dim).float()
    k = qkv[:, heads * dim : (heads + kv_heads) * dim].view(t, kv_heads, dim).float()
    v = k if shared_kv else qkv[:, (heads + kv_heads) * dim :].view(t, kv_heads, dim).float()
    if q_norm is not None and k_norm is not None:
        q, k = _rms(q, q_norm), _rms(k, k_norm)
    if v_norm:
        v = _rms(v, None)
    c, s = cos[positions.long()][:, None], sin[positions.long()][:, None]

    def rotate(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((a * c - b * s, b * c + a * s), -1).to(qkv.dtype)

    q, k, v = rotate(q), rotate(k), v.to(qkv.dtype)
    page = k_cache.shape[2]
    k_cache[slots // page, :, slots % page] = k
    v_cache[slots // page, :, slots % page] = v
    return (q, k, v) if keep_kv else (q, None, None)


def paged_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, table: Tensor, lens: Tensor, window: int, sinks: Tensor | None, splits: int
) -> Tensor:
    """One query token per request over its pages; q is [B, heads, dim]."""
    out = torch.empty_like(q)
    page = k_cache.shape[2]
    group = q.shape[1] // k_cache.shape[1]
    for b, n in enumerate(lens.tolist()):
        at = torch.arange(max(n - window, 0) if window else 0, n, device=q.device)
        pages = table[b].long()[at // page]
        k = k_cache[pages, :, at % page].float().repeat_interleave(group, 1)
        v = v_cache[pages, :, at % page].float().repeat_interleave(group, 1)
        score = torch.einsum("hd,nhd->hn", q[b].float(), k) * q.shape[2] ** -0.5
        if sinks is not None:
            score = torch.cat((score, sinks.float()[:, None]), 1)
        out[b] = torch.einsum("hn,nhd->hd", score.softmax(-1)[:, : len(at)], v).to(q.dtype)
    return out


def prefill_attention(q: Tensor, k: Tensor, v: Tensor, window: int, sinks: Tensor | None) -> Tensor:
    """Causal attention of one prompt; q is [T, heads, dim]."""
    t, heads, dim = q.shape
    group = heads // k.shape[1]
    score = torch.einsum("qhd,khd->hqk", q.float(), k.float().repeat_interleave(group, 1)) * dim**-0.5
    i = torch.arange(t, device=q.device)
    seen = (i[None] <= i[:, None]) & ((i[None] > i[:, None] - window) if window else True)
    score = score.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        score = torch.cat((score, sinks.float()[:, None, None].expand(-1, t, 1)), 2)
    return torch.einsum("hqk,khd->qhd", score.softmax(-1)[..., :t], v.float().repeat_interleave(group, 1)).to(q.dtype)


def route(logits: Tensor, given: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax and top-k of the gate (weights renormalised). Experts are those `given` [T, k]; `counts` [E] starts at zero. Gives weights
    and each pair's rank among the pairs of its expert."""
    top = logits.float().softmax(-1).topk(given.shape[1], -1).values
    flat = given.flatten().long()
    hot = F.one_hot(flat, logits.shape[1])
    counts += hot.sum(0).to(counts.dtype)
    rank = (hot.cumsum(0) * hot).sum(1) - 1
    return top / top.sum(-1, keepdim=True), rank.to(torch.int32).view_as(given)


def gather(x: Tensor, given: Tensor, rank: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of x by expert: rows [T·k, H], the row of each pair, the expert of each row, and the groups' ends."""
    ends = counts.cumsum(0).to(torch.int32)
    flat = given.flatten().long()
    row = (ends - counts)[flat] + rank.flatten()
    rows = torch.empty(len(flat), x.shape[1], dtype=x.dtype, device=x.device)
    rows[row.long()] = x.repeat_interleave(given.shape[1], 0)
    expert = torch.empty_like(row)
    expert[row.long()] = given.flatten().to(expert.dtype)
    return rows, row.view_as(given), expert, ends


def grouped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x [rows, K] by weight [E, N, K], rows of expert e ending at ends[e]."""
    out = torch.empty(x.shape[0], weight.shape[1], dtype=x.dtype, device=x.device)
    start = 0
    for e, end in enumerate(ends.tolist()):
        if end > start:
            out[start:end] = x[start:end] @ weight[e].T
        start = end
    return out


def activate(h: Tensor, kind: str, bias: Tensor | None = None, expert: Tensor | None = None) -> Tensor:
    """Gate and up, side by side in h, to one half."""
    x = h.float()
    if bias is not None and expert is not None:
        x = x + bias[expert.long()].float()
    gate, up = x.chunk(2, -1)
    if kind == "silu":
        y = F.silu(gate) * up
    elif kind == "gelu":
        y = F.gelu(gate, approximate="tanh") * up
    else:
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        y = gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return y.to(h.dtype)


def combine(y: Tensor, row: Tensor, weights: Tensor, bias: Tensor | None = None, expert: Tensor | None = None) -> Tensor:
    """Each token's weighted sum over its experts' rows."""
    z = y.float()
    if bias is not None and expert is not None:
        z = z + bias[expert.long()].float()
    return (z[row.long()] * weights[..., None]).sum(1).to(y.dtype)
