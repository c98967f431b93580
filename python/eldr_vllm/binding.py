"""All access to vLLM's internals: routers, slots and ranks. Raises Unsupported with a reason for everything
that cannot be captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


class Unsupported(Exception):
    """This engine's experts cannot be captured. The message says why; hand-offs carry it. Requests are
    served as usual."""


# Routers whose ids are not the model's expert ids: they include zero experts or append shared experts.
_ROUTERS_WITH_OTHER_IDS: Final = ("ZeroExpertRouter", "AiterSharedRoutedFusedMoERouter")
# Prefix of the names of a draft model's layers (vllm/v1/spec_decode/draft_model.py).
_DRAFT_MODEL: Final = "draft_model."
# With more than 256 experts, ids are stored as signed 16-bit integers.
MAX_EXPERTS: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Group:
    """The KV group whose slots index the store: the first with full attention. Groups with sliding windows
    free blocks while a request runs; state-space groups have no slot per token."""

    index: int
    block_size: int
    layer_name: str


@dataclass(frozen=True, slots=True)
class Routed:
    """An MoE layer of this worker. experts: the module of its experts if its kernel routes by itself."""

    layer_id: int
    router: Any
    experts: Any = None

    def bind(self, hook: Callable[[Any], None], fail: Callable[[str, BaseException], None]) -> None:
        self.router.set_capture_fn(hook)
        if self.experts is not None:
            choose_again(self.router, self.experts, fail)


def group_of(kv_cache_config: Any, longest: int) -> Group:
    """longest: tokens of the longest possible request. A sliding window of at least that size never frees a
    block, so it counts as full attention."""
    from vllm.v1 import kv_cache_interface as kv

    is_full = getattr(kv, "is_full_attention_spec", None) or (lambda spec: isinstance(spec, kv.FullAttentionSpec))
    keeps_all = (is_full, lambda spec: (getattr(spec, "sliding_window", None) or 0) >= longest)
    for keeps in keeps_all:
        for index, group in enumerate(kv_cache_config.kv_cache_groups):
            spec = group.kv_cache_spec
            if keeps(spec):
                return Group(index, int(spec.block_size), str(group.layer_names[0]))
    raise Unsupported("no KV group with full attention (a model of sliding windows alone)")


def check_parallel(vllm_config: Any) -> None:
    parallel = vllm_config.parallel_config
    for name, text in (
        ("decode_context_parallel_size", "decode context parallelism"),
        ("prefill_context_parallel_size", "prefill context parallelism"),
    ):
        if getattr(parallel, name, 1) > 1:
            raise Unsupported(f"{text} spreads a token's slots over ranks")
    if getattr(parallel, "enable_dbo", False):
        raise Unsupported("dual-batch overlap runs a step in two halves")


def check_compiled(vllm_config: Any, device: Any) -> None:
    """On a CPU, torch.compile traces into the routers, and hooks have no effect after the first step (seen on
    0.32, whose engine then crashed with and without the plugin). On an accelerator, the MoE layer is opaque
    to torch.compile."""
    mode = getattr(vllm_config.compilation_config, "mode", None)
    if device.type == "cpu" and mode is not None and int(mode) != 0:
        raise Unsupported("layers are compiled on a CPU, which hides their routers; start with --enforce-eager")


def model_shape(vllm_config: Any) -> tuple[int, int]:
    """Number of logical experts, and top-k."""
    model = vllm_config.model_config
    experts, top_k = int(model.get_num_experts()), 0
    if hasattr(model, "get_num_experts_per_tok"):
        top_k = int(model.get_num_experts_per_tok())
    else:
        text = model.hf_text_config
        top_k = int(getattr(text, "num_experts_per_tok", 0) or getattr(text, "moe_topk", 0) or getattr(text, "top_k_experts", 0))
    if experts <= 0 or top_k <= 0:
        raise Unsupported(f"not a mixture of experts ({experts} experts, top {top_k})")
    if experts > MAX_EXPERTS:
        raise Unsupported(f"{model.model}: {experts} experts; the store holds ids of at most {MAX_EXPERTS}")
    return experts, top_k


def routed_layers(vllm_config: Any, top_k: int) -> list[Routed]:
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter

    found: list[Routed] = []
    for runner in moe_runners(vllm_config):
        name, router = runner.layer_name, runner.router
        experts = None
        if getattr(runner._quant_method, "is_monolithic", False):
            kernel, experts = type(kernel_of(runner)).__name__, getattr(runner, "routed_experts", None)
            if not hasattr(experts, "forward_monolithic") or getattr(router, "eplb_state", None) is not None:
                raise Unsupported(f"{name}: kernel {kernel} routes by itself; take another one, such as --moe-backend triton or marlin")
        if not isinstance(router, BaseRouter) or type(router).__name__ in _ROUTERS_WITH_OTHER_IDS:
            raise Unsupported(f"{name}: router {type(router).__name__} does not show the model's own experts")
        if getattr(router, "capture_fn", None) is not None:
            raise Unsupported(f"{name}: another capture is already set on its router (--enable-return-routed-experts?)")
        if getattr(runner.moe_config, "is_sequence_parallel", False):
            raise Unsupported(f"{name}: sequence parallelism shows each rank a part of the tokens")
        if router.top_k != top_k:
            raise Unsupported(f"{name}: top {router.top_k}, expected {top_k} as in the model's configuration")
        found.append(Routed(int(runner.layer_id), router, experts))
    return found


def choose_again(router: Any, experts: Any, fail: Callable[[str, BaseException], None]) -> None:
    """A monolithic kernel gets the router's logits and does not report its choice, so the layer's router chooses
    from the same logits too, one more launch per layer. Where two experts tie the kernel may choose otherwise."""
    compute = experts.forward_monolithic

    def choose_and_compute(*, x: Any, router_logits: Any, input_ids: Any = None, **more: Any) -> Any:
        try:
            router.select_experts(hidden_states=x, router_logits=router_logits, input_ids=input_ids)
        except Exception as error:
            fail("choosing experts again", error)
        return compute(x=x, router_logits=router_logits, input_ids=input_ids, **more)

    experts.forward_monolithic = choose_and_compute


def moe_runners(vllm_config: Any) -> list[Any]:
    """MoE layers of this worker by increasing layer id, without those of speculative decoding: draft layers of the
    model have higher ids, and a draft model's layers have names of their own."""
    from vllm.model_executor.layers.fused_moe.layer import MoERunner

    hidden = vllm_config.model_config.get_total_num_hidden_layers()
    modules = vllm_config.compilation_config.static_forward_context.values()
    found = (m for m in modules if isinstance(m, MoERunner) and m.layer_id < hidden and not str(m.layer_name).startswith(_DRAFT_MODEL))
    return sorted(found, key=lambda m: m.layer_id)


def kernel_of(runner: Any) -> Any:
    method = runner._quant_method
    kernel = getattr(method, "moe_kernel", None)
    return getattr(getattr(kernel, "impl", None), "fused_experts", None) or getattr(kernel, "fused_experts", None) or method


def slots_in_context(layer_name: str) -> Any:
    """Slots of a KV group in the running step; None in a dummy run."""
    from vllm.forward_context import get_forward_context, is_forward_context_available

    if not is_forward_context_available():
        return None
    mapping = getattr(get_forward_context(), "slot_mapping", None)
    return mapping.get(layer_name) if isinstance(mapping, dict) else None


def own_rows(dp_rank: int, rows: int) -> tuple[int, int]:
    """Range of this rank's rows. With data parallelism, a layer may route the concatenated tokens of all
    ranks; the number of tokens per rank is known on the host."""
    from vllm.forward_context import get_forward_context

    data = getattr(get_forward_context(), "dp_metadata", None)
    if data is None:
        return 0, rows
    sizes = [int(size) for size in data.num_tokens_across_dp_cpu.tolist()]
    own = sizes[dp_rank]
    if rows == own:
        return 0, rows
    if rows == sum(sizes):
        first = sum(sizes[:dp_rank])
        return first, first + own
    raise RuntimeError(f"{rows} rows in a layer, of ranks with {sizes} tokens")


def padding_runs() -> bool:
    """Whether the running step's kernels compute the experts that its routers report for rows of padding. vLLM
    skips padding with VLLM_MOE_SKIP_PADDING where its model runner marks it. In 0.26 (runner V2 only, off by
    default) it does so after the routers; later ones (on by default) let the routers report −1 instead."""
    from vllm import envs
    from vllm.forward_context import get_forward_context
    from vllm.model_executor.layers.fused_moe.router import fused_topk_router

    if hasattr(fused_topk_router, "_get_padding_mask"):
        return True
    return not (getattr(envs, "VLLM_MOE_SKIP_PADDING", False) and getattr(get_forward_context(), "is_padding", None) is not None)


def is_transfer_group(connector: Any) -> bool:
    """Whether a connector is the worker's only one, not a child of MultiConnector."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

    return not has_kv_transfer_group() or get_kv_transfer_group() is connector


def ranks() -> tuple[int, int]:
    """Tensor-parallel rank and pipeline stage."""
    from vllm.distributed import parallel_state

    return int(parallel_state.get_tensor_model_parallel_rank()), int(parallel_state.get_pp_group().rank_in_group)


def kv_bytes(kv_caches: dict[str, Any]) -> int:
    """Size of this worker's KV cache; layers may share a tensor."""
    sizes: dict[int, int] = {}
    for value in kv_caches.values():
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            sizes[int(tensor.data_ptr())] = int(tensor.numel()) * int(tensor.element_size())
    return sum(sizes.values())
