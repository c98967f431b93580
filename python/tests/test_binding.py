"""Access to vLLM's internals, with fakes in their place; test/vllm tests with the real ones."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from eldr_vllm import binding


class Router:
    top_k = 2

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.capture_fn = fails, None

    def set_capture_fn(self, hook: Any) -> None:
        self.capture_fn = hook

    def select_experts(self, hidden_states: Any, router_logits: Any, input_ids: Any) -> None:
        if self.fails:
            raise RuntimeError("no such kernel")
        assert self.capture_fn is not None
        self.capture_fn(("chosen from", hidden_states, router_logits, input_ids))


@pytest.mark.parametrize("fails", [False, True])
def test_a_router_chooses_again_beside_a_kernel_that_does_not_report_its_choice(fails: bool) -> None:
    computed: list[Any] = []

    def compute(**given: Any) -> str:
        computed.append(given)
        return "output"

    experts = SimpleNamespace(forward_monolithic=compute)
    seen: list[Any] = []
    failures: list[str] = []
    routed = binding.Routed(3, Router(fails), experts)
    routed.bind(seen.append, lambda where, error: failures.append(f"{where}: {error}"))
    assert experts.forward_monolithic(x="x", router_logits="logits", input_ids=None) == "output"
    assert computed == [{"x": "x", "router_logits": "logits", "input_ids": None}]
    assert seen == ([] if fails else [("chosen from", "x", "logits", None)])
    assert failures == (["choosing experts again: no such kernel"] if fails else [])


def test_a_kernel_that_gets_the_choice_is_left_as_it_is() -> None:
    router = Router()
    seen: list[Any] = []
    binding.Routed(0, router).bind(seen.append, lambda where, error: None)
    assert router.capture_fn == seen.append


@pytest.mark.parametrize(
    ("reports_none", "skips", "marked", "runs"),
    [
        pytest.param(False, False, True, True, id="0.26 as it is"),
        pytest.param(False, True, True, False, id="0.26, runner V2, padding skipped after the routers"),
        pytest.param(False, True, False, True, id="0.26, runner V1 does not mark padding"),
        pytest.param(True, True, True, True, id="0.32: routers report what runs"),
    ],
)
def test_whether_padding_runs(monkeypatch: pytest.MonkeyPatch, reports_none: bool, skips: bool, marked: bool, runs: bool) -> None:
    routers = "vllm.model_executor.layers.fused_moe.router"
    names = ("vllm", "vllm.forward_context", "vllm.model_executor", "vllm.model_executor.layers", "vllm.model_executor.layers.fused_moe")
    modules: dict[str, Any] = {name: ModuleType(name) for name in (*names, routers)}
    modules["vllm"].envs = SimpleNamespace(VLLM_MOE_SKIP_PADDING=skips)
    context = SimpleNamespace(is_padding=[True] if marked else None)
    modules["vllm.forward_context"].get_forward_context = lambda: context
    modules[routers].fused_topk_router = SimpleNamespace(**({"_get_padding_mask": None} if reports_none else {}))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert binding.padding_runs() is runs


def test_layers_of_speculative_decoding_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class MoERunner:
        def __init__(self, name: str, layer_id: int) -> None:
            self.layer_name, self.layer_id = name, layer_id

    fused = "vllm.model_executor.layers.fused_moe"
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers", fused)}
    modules[f"{fused}.layer"] = ModuleType("layer")
    modules[f"{fused}.layer"].MoERunner = MoERunner
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    names = [("model.layers.1.mlp.experts", 1), ("draft_model.model.layers.0.mlp.experts", 0), ("model.layers.0.mlp.experts", 0)]
    layers = {name: MoERunner(name, at) for name, at in [*names, ("model.layers.2.mtp", 2)]}
    config = SimpleNamespace(
        model_config=SimpleNamespace(get_total_num_hidden_layers=lambda: 2),
        compilation_config=SimpleNamespace(static_forward_context={**layers, "attention": object()}),
    )
    assert [runner.layer_name for runner in binding.moe_runners(config)] == ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"]
