"""Builds the two halves from vLLM's configuration, or reports why that is not possible."""

from __future__ import annotations

from functools import partial
from typing import Any

from . import binding, log, versions
from .binding import Unsupported
from .config import Config
from .handoff import HandOffs
from .layout import Layout, human
from .metrics import Tally
from .worker import Worker


def reason(error: Exception) -> str:
    return str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"


def hand_offs_of(vllm_config: Any, kv_cache_config: Any, config: Config, version: str) -> HandOffs | None:
    """None if nothing is captured (a decode worker that only reports metrics)."""
    grade, sentence = versions.verdict(version)
    (log.info if grade == "known" else log.warning)("%s", sentence)
    if not config.capture:
        return None
    try:
        if grade == "old":
            raise Unsupported(sentence)
        binding.check_parallel(vllm_config)
        group = binding.group_of(kv_cache_config, int(vllm_config.model_config.max_model_len))
        experts, top_k = binding.model_shape(vllm_config)
        can_record = vllm_config.speculative_config is None
        stages = int(vllm_config.parallel_config.pipeline_parallel_size)
        made = HandOffs(group.index, group.block_size, experts, top_k, stages, config.half_life, can_record)
    except Exception as error:
        made = HandOffs(0, 1, 0, 0)
        made.off = reason(error)
        log.warning("hand-offs carry no counts: %s", made.off)
    made.on_off = partial(log.warning, "hand-offs carry no counts from now on: %s")
    return made


def worker_of(vllm_config: Any, kv_cache_config: Any, config: Config, kv_caches: dict[str, Any], stage: int) -> Worker | None:
    """Called after vLLM has built the model and its KV cache, before it captures graphs."""
    if not (config.capture or config.metrics):
        return None
    from .capture import Capture
    from .recorder import recorder_of
    from .torch_store import TorchStore

    binding.check_parallel(vllm_config)
    group = binding.group_of(kv_cache_config, int(vllm_config.model_config.max_model_len))
    experts, top_k = binding.model_shape(vllm_config)
    routed = binding.routed_layers(vllm_config, top_k)
    if not routed:
        if vllm_config.parallel_config.pipeline_parallel_size == 1:
            raise Unsupported("no MoE layer was found")
        return Worker(stage, [], None, None, None)
    layers = [layer.layer_id for layer in routed]
    tally = Tally(layers, config.metrics_every)
    device = next(_tensors(kv_caches)).device
    binding.check_compiled(vllm_config, device)
    store = None
    if config.capture:
        layout = Layout(len(layers), experts, top_k, int(kv_cache_config.num_blocks), group.block_size, config.half_life)
        store = TorchStore(layout, device)
        _log_store(layout, store.nbytes, binding.kv_bytes(kv_caches))
        store.warm()
    recorder = recorder_of(len(layers), experts, top_k, _max_rows(vllm_config), device, store, config.metrics)
    capture = Capture(
        len(layers),
        experts,
        top_k,
        store,
        recorder,
        partial(binding.slots_in_context, group.layer_name),
        partial(binding.own_rows, int(vllm_config.parallel_config.data_parallel_rank)),
        binding.padding_runs,
    )
    if store is not None:
        tally.once("store_bytes", store.nbytes + (0 if recorder is None else recorder.nbytes))
    for row, layer in enumerate(routed):
        layer.bind(capture.hook(row), capture.fail)
    if any(layer.experts is not None for layer in routed):
        log.info("the MoE kernel does not report its choice: routers choose again from the same logits")
    if config.metrics:
        log.info("observing decode steps of %d MoE layers", len(layers))
    return Worker(stage, layers, capture, None, tally)


def off_worker(stage: int, why: str) -> Worker:
    log.warning("nothing is captured here, requests are served without counts: %s", why)
    return Worker(stage, [], None, why, None)


def _log_store(layout: Layout, nbytes: int, cache: int) -> None:
    share = f", {100 * nbytes / cache:.2f} % of the KV cache" if cache else ""
    shape = f"{layout.layers} MoE layers, {layout.experts} experts, top {layout.top_k}"
    log.info("capturing %s; store for %d blocks of %d: %s%s", shape, layout.blocks, layout.block_size, human(nbytes), share)


def _tensors(kv_caches: dict[str, Any]) -> Any:
    for value in kv_caches.values():
        yield from value if isinstance(value, (list, tuple)) else [value]


def _max_rows(vllm_config: Any) -> int:
    """Maximum number of rows of a step, including padding for graphs."""
    tokens = int(vllm_config.scheduler_config.max_num_batched_tokens)
    sizes = getattr(vllm_config.compilation_config, "cudagraph_capture_sizes", None) or [0]
    return max(tokens, *map(int, sizes))
