"""Dummy weights without biases. All of vLLM's dummy weights are tiny, so biases, which are the same for all tokens,
would decide alone, and all tokens would choose the same experts."""

from __future__ import annotations

from typing import Any


def install() -> None:
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    load = DummyModelLoader.load_weights

    def without_bias(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        load(self, model, *args, **kwargs)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.data.zero_()

    DummyModelLoader.load_weights = without_bias
