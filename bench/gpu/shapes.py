"""Shapes of the timed models, with the source of each figure.

Only sizes matter for timing; weights are random. `tiny()` shrinks a shape and keeps its structure, for dry runs without a GPU."""

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Attention:
    """One kind of attention layer. `window` 0 reads the whole context; `shared_kv`: V is the K projection (both are cached)."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    shared_kv: bool = False

    def kv_bytes(self) -> int:
        """Bytes of one cached token in one layer, bf16."""
        return 2 * self.kv_heads * self.head_dim * 2


@dataclass(frozen=True)
class Shape:
    name: str
    model: str
    hidden: int
    vocab: int
    experts: int
    top_k: int
    expert_size: int
    pattern: tuple[Attention, ...]  # layer l uses pattern[l % len(pattern)]
    layers: int
    activation: str  # silu | swiglu_clamped | gelu
    qk_norm: bool = False
    v_norm: bool = False
    bias: bool = False  # of projections, gate and experts
    sinks: bool = False
    dense_size: int = 0  # a dense MLP beside the experts (Gemma 4), with its own norms
    sandwich_norms: bool = False
    softcap: float = 0.0
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def attention(self, layer: int) -> Attention:
        return self.pattern[layer % len(self.pattern)]

    def expert_bytes(self) -> int:
        """All experts of one layer, bf16: gate, up and down."""
        return self.experts * 3 * self.hidden * self.expert_size * 2

    def kv_bytes_read(self, contexts: list[int]) -> int:
        """Bytes of KV that one decode step reads, all layers: windows cap what a layer sees."""
        total = 0
        for layer in range(self.layers):
            a = self.attention(layer)
            total += a.kv_bytes() * sum(min(c, a.window) if a.window else c for c in contexts)
        return total

    def kv_bytes_per_token(self) -> int:
        """What a token of the prompt leaves in the cache, windows not subtracted: what a hand-off moves at most."""
        return sum(self.attention(layer).kv_bytes() for layer in range(self.layers))

    def describe(self) -> dict[str, Any]:
        d = asdict(self)
        d["kv_bytes_per_token"] = self.kv_bytes_per_token()
        return d


QWEN3_30B_A3B = Shape(
    name="qwen3-30b-a3b",
    model="Qwen/Qwen3-30B-A3B",
    hidden=2048,
    vocab=151936,
    experts=128,
    top_k=8,
    expert_size=768,
    pattern=(Attention(heads=32, kv_heads=4, head_dim=128),),
    layers=48,
    activation="silu",
    qk_norm=True,
    sources=(
        "MindSpeed-RL configs/model/qwen3_30b_a3b.yaml (gitcode.com/Ascend): 48 layers, hidden 2048, 32 heads, 4 KV groups, kv_channels "
        "128, 128 experts, top-8, moe_ffn 768, vocabulary 151936, qk_layernorm, untied head",
        "config.json of models of the same size on huggingface.co (RTP-LLM/Qwen3-Coder-30B-A3B-Instruct-RTPurbo, "
        "AweAI-Team/Scale-SWE-Agent): same figures, sliding_window null",
    ),
    notes=("Qwen/Qwen3-30B-A3B's own config.json was not at hand; two derived configs and a trainer's agree on every figure",),
)

GPT_OSS_120B = Shape(
    name="gpt-oss-120b",
    model="openai/gpt-oss-120b",
    hidden=2880,
    vocab=201088,
    experts=128,
    top_k=4,
    expert_size=2880,
    pattern=(Attention(64, 8, 64, window=128), Attention(64, 8, 64)),
    layers=36,
    activation="swiglu_clamped",
    bias=True,
    sinks=True,
    sources=(
        "openai/gpt-oss gpt_oss/torch/model.py @0568dfc (ModelConfig): 36 layers, 128 experts, top-4, vocabulary 201088, hidden 2880, "
        "intermediate 2880, head_dim 64, 64 heads, 8 KV heads, window 128 on even layers, sinks, biases",
    ),
    notes=("timed in bf16: that of a shape. The model is served in mxfp4, about a quarter of the expert bytes",),
)

GEMMA_4_26B_A4B = Shape(
    name="gemma-4-26b-a4b",
    model="google/gemma-4-26B-A4B",
    hidden=2816,
    vocab=262144,
    experts=128,
    top_k=8,
    expert_size=704,
    pattern=(Attention(16, 8, 256, window=1024),) * 5 + (Attention(16, 2, 512, shared_kv=True),),
    layers=30,
    activation="gelu",
    qk_norm=True,
    v_norm=True,
    dense_size=2112,
    sandwich_norms=True,
    softcap=30.0,
    sources=(
        "huggingface/transformers models/gemma4/convert_gemma4_weights.py @0f3f063 (gemma-4-26b-a4b): hidden 2816, 30 layers (5 sliding, 1 "
        "full), 16 heads, 8 KV heads (2 in full layers, K = V), 128 experts, top-8, moe 704, dense 2112, window 1024, softcap 30",
        "head dims 256/512, vocabulary 262144: config.json of LetheanNetwork/lemmy-pt on huggingface.co and NVIDIA Megatron-Bridge's "
        "gemma4_provider; order of norms and router: transformers modular_gemma4.py @033b1a8",
    ),
    notes=("text decoder only; per-expert scales and the layer scalar (single multiplications) are left out",),
)

SHAPES: dict[str, Shape] = {s.name: s for s in (QWEN3_30B_A3B, GPT_OSS_120B, GEMMA_4_26B_A4B)}


def tiny(shape: Shape) -> Shape:
    """The same structure at a size that a CPU runs in milliseconds."""

    def shrink(a: Attention) -> Attention:
        return replace(a, heads=8, kv_heads=4 if a.kv_heads >= 4 else 2, head_dim=16 * (2 if a.shared_kv else 1), window=min(a.window, 24))

    return replace(
        shape,
        hidden=96,
        vocab=512,
        experts=16,
        top_k=min(shape.top_k, 4),
        expert_size=48,
        dense_size=64 if shape.dense_size else 0,
        pattern=tuple(shrink(a) for a in shape.pattern),
        layers=len(shape.pattern) + 1,
    )
