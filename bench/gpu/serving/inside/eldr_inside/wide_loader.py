"""The load format `wide`: reads tiny6's tensors and widens each on the device, so that no large file is written
or read."""

from __future__ import annotations

import copy
from collections.abc import Generator
from typing import Any

from .widen import Widener


def install() -> None:
    from vllm.model_executor.model_loader import _LOAD_FORMAT_TO_MODEL_LOADER, register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    if "wide" in _LOAD_FORMAT_TO_MODEL_LOADER:
        return

    class WideLoader(DefaultModelLoader):  # type: ignore[misc]  # vLLM's class has no types here
        def __init__(self, load_config: Any) -> None:
            load_config = copy.copy(load_config)
            load_config.load_format = "safetensors"  # how DefaultModelLoader finds the files
            super().__init__(load_config)

        def get_all_weights(self, model_config: Any, model: Any) -> Generator[tuple[str, Any], None, None]:
            config = model_config.hf_config
            narrow = (config.widened_from["hidden_size"], config.widened_from["moe_intermediate_size"])
            device = next(model.parameters()).device
            widen = Widener(narrow, (config.hidden_size, config.moe_intermediate_size), device)
            for name, tensor in super().get_all_weights(model_config, model):
                yield name, widen(name, tensor)

    register_model_loader("wide")(WideLoader)
