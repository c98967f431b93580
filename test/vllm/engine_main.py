"""Runs vLLM engines one after the other in one process, which saves imports: `engine_main.py RUNS RESULTS`, both JSON. Changes to vLLM
and faults in the plugin are made in this process only."""

from __future__ import annotations

import gc
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.platforms.cpu import CpuPlatform

import eldr_vllm
from eldr_vllm.handoff import HandOffs
from eldr_vllm.torch_store import TorchStore


class Injected(Exception):
    pass


def _asynchronous() -> Any:
    """vLLM's CPU platform disables asynchronous scheduling, but the engine supports it."""
    check = CpuPlatform.check_and_update_config.__func__

    def keep(cls: Any, vllm_config: Any) -> None:
        check(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = True

    return patch.object(CpuPlatform, "check_and_update_config", classmethod(keep))


def _routes_by_itself() -> Any:
    """A monolithic kernel: it gets the router's logits and does not report its choice."""

    def apply_monolithic(self: Any, layer: Any, x: Any, router_logits: Any, input_ids: Any = None) -> Any:
        weights, ids = torch.softmax(router_logits.float(), dim=-1).topk(layer.top_k)
        return self.apply(layer, x, weights / weights.sum(-1, keepdim=True), ids.to(torch.int32), None, None)

    return patch.multiple(UnquantizedFusedMoEMethod, is_monolithic=property(lambda self: True), apply_monolithic=apply_monolithic)


def _fails(owner: Any, name: str, after: int) -> Any:
    """Makes the method raise after this many calls."""
    method, calls = getattr(owner, name), iter(range(after))

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise Injected(f"{owner.__name__}.{name}")
        return method(self, *args, **kwargs)

    return patch.object(owner, name, failing)


CHANGES: dict[str, Callable[[int], Any]] = {
    "asynchronous": lambda _: _asynchronous(),
    "routes by itself": lambda _: _routes_by_itself(),
    **{f"store.{name}": lambda n, name=name: _fails(TorchStore, name, n) for name in ("scatter", "sums", "rows")},
    **{
        f"scheduler.{name}": lambda n, name=name: _fails(HandOffs, name, n)
        for name in ("follow", "found_locally", "admitted", "step", "finished", "received")
    },
}


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Not with a handler: vLLM reconfigures its loggers when an engine starts and removes handlers."""
    lines: list[str] = []
    logger = logging.getLogger("vllm.eldr")
    handle = logger.handle

    def keep(record: logging.LogRecord) -> None:
        lines.append(record.getMessage())
        handle(record)

    with patch.object(logger, "handle", keep):
        yield lines


@contextmanager
def _watched(seen: dict[str, int]) -> Iterator[None]:
    """Most prompts that ended in one step, and blocks that were allocated."""
    step = HandOffs.step

    def watching(self: HandOffs, out: Any) -> Any:
        seen["allocated"] += sum(len(blocks) for blocks in self._new.values())
        cached = out.scheduled_cached_reqs
        for rid, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            seen["allocated"] += 0 if blocks is None or rid in cached.resumed_req_ids else len(blocks[self.group])
        meta = step(self, out)
        seen["ends"] = max(seen["ends"], len(meta.ends))
        return meta

    with patch.object(HandOffs, "step", watching):
        yield


def _asked(llm: Any, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    prompts = [{"prompt_token_ids": request["prompt"]} for request in batch]
    wanted = {"do_remote_decode": True, "do_remote_prefill": False, "eldr": {"record": "decode"}}
    sampling = [
        SamplingParams(
            temperature=0,
            max_tokens=request["max_tokens"],
            ignore_eos=True,
            detokenize=False,
            extra_args={"kv_transfer_params": wanted},
        )
        for request in batch
    ]
    return [
        {"tokens": list(answer.outputs[0].token_ids), "cached": answer.num_cached_tokens, "sent": answer.kv_transfer_params}
        for answer in llm.generate(prompts, sampling, use_tqdm=False)
    ]


def _run(run: dict[str, Any]) -> dict[str, Any]:
    seen = {"ends": 0, "allocated": 0}
    with ExitStack() as stack:
        stack.enter_context(_watched(seen))
        for name, after in run["changes"].items():
            stack.enter_context(CHANGES[name](after))
        lines = stack.enter_context(_logged())
        transfer = KVTransferConfig(kv_connector="EldrConnector", kv_role="kv_both", kv_connector_extra_config=run["settings"])
        llm = LLM(model=run["model"], kv_transfer_config=transfer, **run["arguments"])
        core = llm.llm_engine.engine_core.engine_core
        try:
            answers = [_asked(llm, batch) for batch in run["batches"]]
            totals = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
        finally:
            llm.llm_engine.engine_core.shutdown()
        specs = [group.kv_cache_spec for group in core.scheduler.kv_cache_config.kv_cache_groups]
        return {
            "answers": answers,
            "log": lines,
            "groups": [(type(spec).__name__, spec.block_size) for spec in specs],
            "preempted": totals["vllm:num_preemptions"],
            "drafted": totals.get("vllm:spec_decode_num_draft_tokens", 0),
            "accepted": totals.get("vllm:spec_decode_num_accepted_tokens", 0),
            "scheduler": type(core.scheduler).__name__,
            "in_flight": core.batch_queue_size,
            **seen,
        }


def main(runs: Path, results: Path) -> None:
    eldr_vllm.register()
    out: list[dict[str, Any]] = []
    for run in json.loads(runs.read_text()):
        try:
            out.append(_run(run))
        except Exception:
            out.append({"error": traceback.format_exc()})
        gc.collect()
        results.write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
