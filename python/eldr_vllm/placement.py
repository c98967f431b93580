"""Places each layer's logical experts on the ranks given by a placement file.

vLLM has no such file. It builds an expert map per layer (`ExpertMapManager`, placement "linear"), which
weight loading and kernels use to locate experts. `RoutedExperts` reads that map in `update_expert_map_info`,
which runs while a layer is built, before any weight exists. This module replaces the map there. It rejects
features that assume linear placement (all-to-all kernels, EPLB, the weight filter)."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from . import binding, log
from .config import Config, ConfigError, config_in
from .placement_file import Placement, PlacementError, read_placement

# Kernels that use expert maps, according to messages of vLLM's ExpertMapManager; for kernels that do not
# report it themselves.
_KERNELS_WITH_MAPS: Final = ("Triton", "Marlin", "DeepGemm", "OAITriton", "UnfusedOAITriton", "Humming", "XPU")

_placements: dict[tuple[str, int], Placement] = {}


def local_map(placement: Placement, cluster: int, layer: int, rank: int) -> list[int]:
    """vLLM's expert map: the local index of each logical expert on that rank, −1 if it is on another rank."""
    out = np.full(placement.experts, -1, np.int32)
    local = placement.experts_of(cluster, layer, rank)
    out[local] = np.arange(len(local))
    return [int(value) for value in out]


def check_fits(placement: Placement, cluster: int, layers: int, experts: int, ranks: int, model: str = "") -> None:
    """model: the engine's name for it, only for messages; servers of one model may use different names."""
    path = placement.path
    if cluster >= placement.clusters:
        raise PlacementError(f"{path}: cluster {cluster}; the file has {placement.clusters}, from 0")
    for what, found, expected in (
        ("MoE layers", placement.layers, layers),
        ("experts", placement.experts, experts),
        ("ranks", placement.ranks, ranks),
    ):
        if found != expected:
            made_for = f" (made for {placement.model!r})" if placement.model else ""
            raise PlacementError(f"{path}: {found} {what}{made_for}; this engine{f' of {model!r}' if model else ''} has {expected}")


def moe_layer_ids(hf_config: Any, hidden_layers: int) -> list[int]:
    """Ids of a model's MoE layers, from its configuration. Model families with dense layers use different
    fields for this."""

    def get(name: str, default: Any) -> Any:
        return getattr(hf_config, name, default)

    def within(start: int, end: int, step: int) -> list[int]:
        """Every step-th layer (layers counted from 1) from start to end."""
        return [layer for layer in range(hidden_layers) if start <= layer <= end and step > 0 and (layer + 1) % step == 0]

    last = hidden_layers - 1
    if (step := get("interleave_moe_layer_step", None)) is not None:  # Llama 4; vLLM then ignores moe_layers
        return within(0, last, step)
    if (layers := get("moe_layers", None)) is not None:
        return sorted(layers)
    if (start := get("moe_layer_start_index", None)) is not None:  # ERNIE 4.5; with vision, one number for text and one for images
        ends = [last if end in (None, -1) else end for end in _listed(get("moe_layer_end_index", None))]
        return within(min(_listed(start)), max(ends), get("moe_layer_interval", 1) or 1)
    if (first := get("num_dense_layers", None)) is not None:  # AFMoE
        return within(first, last, 1)
    if (period := get("expert_layer_period", None)) is not None:  # Jamba
        return [layer for layer in range(hidden_layers) if layer % period == get("expert_layer_offset", 0)]
    dense = set(get("mlp_only_layers", None) or [])
    step = get("decoder_sparse_step", None) or get("moe_layer_freq", None) or 1
    first = get("first_k_dense_replace", 0) or 0
    if isinstance(step, (list, tuple)):  # one flag per layer
        return [layer for layer, flag in enumerate(step) if flag]
    qwen = get("decoder_sparse_step", None) is not None
    sparse = [layer for layer in range(hidden_layers) if layer >= first and layer not in dense]
    return [layer for layer in sparse if ((layer + 1) % step == 0 if qwen else layer % step == 0)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def install() -> None:
    """Called in every process before a model is built. Does nothing without a configured placement."""
    try:
        from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
    except ImportError:
        return  # an older vLLM: `require` rejects a configured placement
    if getattr(RoutedExperts, "_eldr_places", False):
        return
    original = RoutedExperts.update_expert_map_info

    def update_expert_map_info(self: Any) -> None:
        _place(self)
        original(self)

    RoutedExperts.update_expert_map_info = update_expert_map_info
    RoutedExperts._eldr_places = True


def require(config: Config) -> None:
    """Called when the connector starts. Raises if a placement is configured but cannot be applied."""
    if config.placement is None:
        return
    try:
        from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
    except ImportError as error:
        raise ConfigError(f"EldrConnector: this vLLM cannot take a placement ({error})") from error
    if not getattr(RoutedExperts, "_eldr_places", False):
        raise ConfigError("EldrConnector: placement is set, but the plugin was not loaded before the model (VLLM_PLUGINS?)")


def takes_maps(kernel: Any) -> bool:
    """True if an MoE kernel uses the expert map. Other kernels assume linear placement and would compute
    wrong results."""
    supports = getattr(kernel, "supports_expert_map", None)
    return bool(supports()) if supports is not None else type(kernel).__name__.startswith(_KERNELS_WITH_MAPS)


def check_placed(vllm_config: Any, config: Config) -> None:
    """After loading: checks that the MoE layers are the expected ones, and that each has its map and a kernel
    that uses it."""
    if config.placement is None:
        return
    runners, model = binding.moe_runners(vllm_config), vllm_config.model_config
    first, end = model.get_layers_start_end_indices(vllm_config.parallel_config)
    expected = [layer for layer in moe_layer_ids(model.hf_text_config, model.get_total_num_hidden_layers()) if first <= layer < end]
    if (found := [int(runner.layer_id) for runner in runners]) != expected:
        what = f"layers {found} route experts, expected {expected} by the model's configuration"
        raise PlacementError(f"{config.placement}: {what}; the file's layers cannot be matched")
    for runner in runners:
        if not getattr(runner.routed_experts, "_eldr_placed", False):
            raise PlacementError(f"{config.placement}: {runner.layer_name} was built without it")
        kernel = binding.kernel_of(runner)
        if not takes_maps(kernel):
            what = f"kernel {type(kernel).__name__} of {runner.layer_name} takes no expert map"
            raise PlacementError(f"{config.placement}: {what}; choose another --moe-backend")


def _place(experts: Any) -> None:
    import torch
    from vllm.config import get_current_vllm_config

    vllm_config = get_current_vllm_config()
    config = config_in(vllm_config)
    if config is None or config.placement is None or config.cluster is None:
        return
    manager = experts.expert_map_manager
    text = vllm_config.model_config.hf_text_config
    hidden = vllm_config.model_config.get_total_num_hidden_layers()
    layer_id = int(re.findall(r"\.layers\.(\d+)\.", experts.layer_name + ".")[0])
    if layer_id >= hidden:
        return  # a draft layer
    _check_supported(vllm_config, manager)
    ids = moe_layer_ids(text, hidden)
    placement = _placed(config.placement, config.cluster, len(ids), manager, str(vllm_config.model_config.model))
    if layer_id not in ids:
        raise PlacementError(f"{config.placement}: layer {layer_id} routes experts, expected only {ids}")
    linear = manager._expert_map
    values = local_map(placement, config.cluster, ids.index(layer_id), int(manager.ep_rank))
    manager._expert_map = torch.tensor(values, dtype=linear.dtype, device=linear.device)
    experts._eldr_placed = True


def _check_supported(vllm_config: Any, manager: Any) -> None:
    parallel = vllm_config.parallel_config
    problem = None
    if not parallel.enable_expert_parallel or manager._expert_map is None:
        problem = "experts are not spread over ranks; start with --enable-expert-parallel and more than one rank, or remove placement"
    elif parallel.enable_eplb:
        problem = "EPLB moves experts by itself; start without --enable-eplb"
    elif getattr(parallel, "enable_ep_weight_filter", False):
        problem = "the expert weight filter assumes linear experts; start without --enable-ep-weight-filter"
    elif manager.moe_parallel_config.use_all2all_kernels:
        problem = "all-to-all kernels (data parallelism) assume linear experts; use tensor parallelism"
    elif manager.num_fused_shared_experts > 0 or manager.expert_mask is not None:
        problem = "AITER's fused shared experts are not supported with a placement"
    if problem is not None:
        raise ConfigError(f"EldrConnector: placement cannot take effect: {problem}")


def _placed(path: str, cluster: int, layers: int, manager: Any, model: str) -> Placement:
    key = (path, cluster)
    if key not in _placements:
        placement = read_placement(path)
        check_fits(placement, cluster, layers, int(manager.global_num_experts), int(manager.ep_size), model)
        _placements[key] = placement
        log.info(
            "experts placed according to %s, cluster %d: %d layers, %d experts on %d ranks",
            path,
            cluster,
            layers,
            placement.experts,
            placement.ranks,
        )
    return _placements[key]
