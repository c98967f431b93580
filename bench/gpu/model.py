"""A decoder of a given shape with random weights: one decode step, one prefill, and the parts of a step that are timed alone.

Projections, norms and gates exist for every layer. Expert weights, most of the memory, exist `expert_sets` times and the layers take
them in turn; so do the KV pools. Both are far past the L2 cache, so every layer reads from HBM as in a real model."""

from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shapes import Attention, Shape

PAGE = 16
GIB = 1 << 30


class Layer:
    """Weights of one layer, its experts apart."""

    def __init__(self, shape: Shape, a: Attention, make: Any):
        h, d = shape.hidden, a.head_dim
        kv_parts = 1 if a.shared_kv else 2
        self.qkv: Tensor = make((a.heads + kv_parts * a.kv_heads) * d, h, fan=h)
        self.out: Tensor = make(h, a.heads * d, fan=a.heads * d)
        self.gate: Tensor = make(shape.experts, h, fan=h)
        self.qkv_bias: Tensor | None = make(self.qkv.shape[0]) if shape.bias else None
        self.out_bias: Tensor | None = make(h) if shape.bias else None
        self.gate_bias: Tensor | None = make(shape.experts) if shape.bias else None
        self.sinks: Tensor | None = make(a.heads) if shape.sinks else None
        self.q_norm: Tensor | None = make(d) if shape.qk_norm else None
        self.k_norm: Tensor | None = make(d) if shape.qk_norm else None
        # before attention, before the experts; Gemma adds: after attention, before the dense MLP, the router's, after dense, experts, both
        self.norms: list[Tensor] = [make(h) for _ in range(8 if shape.sandwich_norms else 2)]
        self.dense_in: Tensor | None = make(2 * shape.dense_size, h, fan=h) if shape.dense_size else None
        self.dense_out: Tensor | None = make(h, shape.dense_size, fan=shape.dense_size) if shape.dense_size else None


class Experts:
    """One set of expert weights, [E, N, K] as torch's grouped GEMM reads them transposed."""

    def __init__(self, shape: Shape, make: Any):
        e, h, i = shape.experts, shape.hidden, shape.expert_size
        self.up: Tensor = make(e, 2 * i, h, fan=h)
        self.down: Tensor = make(e, h, i, fan=i)
        self.up_bias: Tensor | None = make(e, 2 * i) if shape.bias else None
        self.down_bias: Tensor | None = make(e, h) if shape.bias else None


class Inputs:
    """What a captured step reads: all of it can change between replays."""

    def __init__(self, shape: Shape, tokens: int, pages: int, device: torch.device):
        self.tokens = tokens
        self.ids = torch.randint(0, shape.vocab, (tokens,), device=device)
        self.given = torch.zeros(shape.layers, tokens, shape.top_k, dtype=torch.int32, device=device)
        self.lens = torch.ones(tokens, dtype=torch.int32, device=device)
        self.positions = torch.zeros(tokens, dtype=torch.int32, device=device)
        self.slots = torch.zeros(tokens, dtype=torch.int64, device=device)
        self.table = torch.zeros(tokens, pages, dtype=torch.int32, device=device)


class Model:
    def __init__(
        self,
        shape: Shape,
        ops: ModuleType,
        device: torch.device,
        max_batch: int,
        max_context: int,
        expert_gib: float = 64.0,
        kv_gib: float = 24.0,
        min_tokens: int = 0,
        seed: int = 1,
        dtype: torch.dtype = torch.bfloat16,
    ):
        self.shape, self.ops, self.device, self.dtype, self.max_batch = shape, ops, device, dtype, max_batch
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)

        def make(*size: int, fan: int = 0) -> Tensor:
            w = torch.empty(*size, dtype=dtype, device=device)
            return w.normal_(0.0, fan**-0.5) if fan else w.normal_(0.0, 0.1).add_(0.0 if len(size) > 1 else 1.0)

        self.layers = [Layer(shape, shape.attention(i), make) for i in range(shape.layers)]
        self.expert_sets = max(1, min(shape.layers, int(expert_gib * GIB / shape.expert_bytes())))
        self.experts = [Experts(shape, make) for _ in range(self.expert_sets)]
        self.embedding, self.head = make(shape.vocab, shape.hidden, fan=1), make(shape.vocab, shape.hidden, fan=shape.hidden)
        self.final_norm = make(shape.hidden)

        self.pages_per_request = -(-max_context // PAGE)
        self.pages = max(max_batch * self.pages_per_request, -(-min_tokens // PAGE))
        width = max(a.kv_heads * a.head_dim for a in shape.pattern)
        pool_bytes = 2 * self.pages * PAGE * width * 2
        self.kv_sets = max(1, min(shape.layers, int(kv_gib * GIB / pool_bytes)))
        self.pools = [make(2, self.pages * PAGE * width, fan=1) for _ in range(self.kv_sets)]
        self.page_order = self.rng.permutation(self.pages).astype(np.int32)
        self.counts = torch.zeros(shape.layers, shape.experts, dtype=torch.int32, device=device)
        self.rotary = {a.head_dim: self._rotary(a.head_dim, max(max_context, min_tokens) + 1) for a in shape.pattern}

    def _rotary(self, dim: int, length: int) -> tuple[Tensor, Tensor]:
        angle = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(0, dim, 2).float() / dim))
        return angle.cos().to(self.device), angle.sin().to(self.device)

    def bytes(self) -> int:
        tensors = [t for o in (*self.layers, *self.experts) for v in vars(o).values() for t in (v if isinstance(v, list) else [v])]
        return sum(t.nbytes for t in (*tensors, *self.pools, self.embedding, self.head) if t is not None)

    def cache(self, layer: int) -> tuple[Tensor, Tensor]:
        a = self.shape.attention(layer)
        pool = self.pools[layer % self.kv_sets]
        used = self.pages * PAGE * a.kv_heads * a.head_dim
        k, v = (pool[i, :used].view(self.pages, a.kv_heads, PAGE, a.head_dim) for i in (0, 1))
        return k, v

    # Inputs

    def decode_inputs(self, batch: int) -> Inputs:
        x = Inputs(self.shape, batch, self.pages_per_request, self.device)
        table = self.page_order[: batch * self.pages_per_request].reshape(batch, -1)
        x.table.copy_(torch.from_numpy(table))
        return x

    def set_contexts(self, x: Inputs, contexts: list[int]) -> None:
        """Tokens that each request's attention reads in this step, the new one among them."""
        n = np.asarray(contexts, dtype=np.int64)
        page = self.page_order[: x.tokens * self.pages_per_request].reshape(x.tokens, -1)[np.arange(x.tokens), (n - 1) // PAGE]
        x.lens.copy_(torch.from_numpy(n.astype(np.int32)))
        x.positions.copy_(torch.from_numpy((n - 1).astype(np.int32)))
        x.slots.copy_(torch.from_numpy(page.astype(np.int64) * PAGE + (n - 1) % PAGE))

    def prefill_inputs(self, tokens: int) -> Inputs:
        x = Inputs(self.shape, tokens, 1, self.device)
        at = np.arange(tokens)
        x.positions.copy_(torch.from_numpy(at.astype(np.int32)))
        x.slots.copy_(torch.from_numpy(self.page_order[at // PAGE].astype(np.int64) * PAGE + at % PAGE))
        return x

    def set_active(self, x: Inputs, active: int) -> None:
        """Exactly `active` experts in every layer, drawn again for each layer; tokens are spread evenly."""
        s = self.shape
        pairs = x.tokens * s.top_k
        if not s.top_k <= active <= min(s.experts, pairs):
            raise ValueError(f"{active} active experts are not feasible with {x.tokens} tokens, top-{s.top_k} of {s.experts}")
        turn = np.arange(pairs) % active
        given = np.stack([self.rng.permutation(s.experts)[:active][turn] for _ in range(s.layers)])
        self.set_experts(x, given.reshape(s.layers, x.tokens, s.top_k))

    def draw_experts(self, tokens: int, spread: float) -> np.ndarray:
        """Experts as a gate might choose them, [L, tokens, k]: popularity is lognormal (`spread` its σ), drawn again for each layer.
        Popular experts get more tokens; the number of active experts follows."""
        s = self.shape
        popularity = self.rng.normal(0.0, spread, (s.layers, 1, s.experts))
        return np.argsort(-(popularity + self.rng.gumbel(size=(s.layers, tokens, s.experts))), axis=-1)[:, :, : s.top_k]

    def set_experts(self, x: Inputs, given: np.ndarray) -> None:
        x.given.copy_(torch.from_numpy(np.ascontiguousarray(given, dtype=np.int32)))

    def splits(self, batch: int, a: Attention) -> int:
        """Splits of a request's KV: enough programs for three waves on 132 multiprocessors, a power of two."""
        want = 3 * 132 / (batch * a.kv_heads)
        n = 2
        while n < want and n < 64:
            n *= 2
        return n

    # The step

    def attend(self, x: Inputs, layer: int, q: Tensor) -> Tensor:
        a = self.shape.attention(layer)
        k, v = self.cache(layer)
        return self.ops.paged_attention(q, k, v, x.table, x.lens, a.window, self.layers[layer].sinks, self.splits(x.tokens, a))

    def attention(self, x: Inputs, layer: int, h: Tensor, prefill: bool) -> Tensor:
        a, w = self.shape.attention(layer), self.layers[layer]
        k_cache, v_cache = self.cache(layer)
        cos, sin = self.rotary[a.head_dim]
        q, k, v = self.ops.rope_cache(
            F.linear(h, w.qkv, w.qkv_bias), a.heads, a.kv_heads, a.head_dim, a.shared_kv, (w.q_norm, w.k_norm, self.shape.v_norm),
            cos, sin, x.positions, x.slots, k_cache, v_cache, prefill,
        )  # fmt: skip
        out = self.ops.prefill_attention(q, k, v, a.window, w.sinks) if prefill else self.attend(x, layer, q)
        return F.linear(out.reshape(x.tokens, -1), w.out, w.out_bias)

    def moe(self, x: Inputs, layer: int, h: Tensor, routed: Tensor) -> Tensor:
        """Gate, permutation by expert, the two grouped GEMMs, weighted sum. `routed` is what the gate reads."""
        w, e, ops = self.layers[layer], self.experts[layer % self.expert_sets], self.ops
        given, counts = x.given[layer], self.counts[layer]
        weights, rank = ops.route(F.linear(routed, w.gate, w.gate_bias), given, counts)
        rows, row, expert, ends = ops.gather(h, given, rank, counts)
        mid = ops.activate(ops.grouped(rows, e.up, ends), self.shape.activation, e.up_bias, expert)
        return ops.combine(ops.grouped(mid, e.down, ends), row, weights, e.down_bias, expert)

    def step(self, x: Inputs, prefill: bool = False, layers: int | None = None) -> Tensor:
        """One decode step of x.tokens requests, or one prefill of a prompt of x.tokens; gives the chosen token ids."""
        ops, s = self.ops, self.shape
        n = s.layers if layers is None else layers
        self.counts.zero_()
        residual = F.embedding(x.ids, self.embedding)
        h = ops.norm(residual, self.layers[0].norms[0])
        for i in range(n):
            w = self.layers[i]
            after = self.layers[i + 1].norms[0] if i + 1 < n else self.final_norm
            att = self.attention(x, i, h, prefill)
            if not s.sandwich_norms:
                h = ops.add_norm(att, residual, w.norms[1])
                h = ops.add_norm(self.moe(x, i, h, h), residual, after)
                continue
            dense = ops.add_norm(att, residual, w.norms[3], w.norms[2])
            assert w.dense_in is not None and w.dense_out is not None
            dense = F.linear(ops.activate(F.linear(dense, w.dense_in), s.activation), w.dense_out)
            routed = self.moe(x, i, ops.norm(residual, w.norms[1]), ops.norm(residual, w.norms[4]))
            h = ops.add_norm(ops.norm_sum(dense, routed, w.norms[5], w.norms[6]), residual, after, w.norms[7])
        logits = F.linear(h[-1:] if prefill else h, self.head)
        if s.softcap:
            logits = logits.div_(s.softcap).tanh_().mul_(s.softcap)
        return logits.argmax(-1)

    # Parts timed alone

    def moe_layers(self, x: Inputs, h: Tensor) -> Tensor:
        self.counts.zero_()
        out = h
        for i in range(self.shape.layers):
            out = self.moe(x, i, h, h)
        return out

    def attention_layers(self, x: Inputs, q: dict[tuple[int, int], Tensor]) -> None:
        for i in range(self.shape.layers):
            a = self.shape.attention(i)
            self.attend(x, i, q[a.heads, a.head_dim])
