"""A fake of the parts of vLLM that connector.py imports, to test its behaviour on failures. test/vllm tests
with the real one."""

from __future__ import annotations

import enum
import sys
from abc import ABC
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class Metadata(ABC):  # noqa: B024 - as in vLLM
    pass


class Base(ABC):  # noqa: B024 - as in vLLM
    def __init__(self, vllm_config: Any, role: Role, kv_cache_config: Any) -> None:
        self._vllm_config, self._role, self._kv_cache_config = vllm_config, role, kv_cache_config
        self._connector_metadata: Any = None

    def bind_connector_metadata(self, metadata: Any) -> None:
        self._connector_metadata = metadata


@dataclass
class Stats:
    data: dict[str, Any] = field(default_factory=dict)


class FullAttentionSpec:
    block_size = 4


class SlidingWindowSpec:
    block_size = 4

    def __init__(self, sliding_window: int) -> None:
        self.sliding_window = sliding_window


class StateSpaceSpec:
    block_size = 4
    mamba_cache_mode = "none"


MAX_MODEL_LEN = 64


def install(monkeypatch: pytest.MonkeyPatch, version: str = "0.32.0") -> Any:
    """The connector's module, imported again."""

    def module(name: str, **values: Any) -> None:
        made = ModuleType(name)
        for key, value in values.items():
            setattr(made, key, value)
        monkeypatch.setitem(sys.modules, name, made)

    v1 = "vllm.distributed.kv_transfer.kv_connector.v1"
    module("vllm", __version__=version)
    for name in ("vllm.distributed", "vllm.distributed.kv_transfer.kv_connector", v1):
        module(name)
    group: dict[str, Any] = {}
    module(
        "vllm.distributed.kv_transfer", has_kv_transfer_group=lambda: bool(group), get_kv_transfer_group=lambda: group["it"], group=group
    )
    module(
        f"{v1}.base",
        KVConnectorBase_V1=Base,
        KVConnectorMetadata=Metadata,
        KVConnectorRole=Role,
        KVConnectorWorkerMetadata=type("WorkerMetadata", (ABC,), {}),
        SupportsHMA=type("SupportsHMA", (ABC,), {}),
    )
    module(f"{v1}.metrics", KVConnectorPromMetrics=object, KVConnectorStats=Stats)
    kv = {"is_full_attention_spec": lambda spec: isinstance(spec, FullAttentionSpec)}
    module("vllm.v1", kv_cache_interface=SimpleNamespace(**kv))
    for name in ("eldr_vllm.connector", "eldr_vllm.stats"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import eldr_vllm.connector as connector

    for name in ("eldr_vllm.connector", "eldr_vllm.stats"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return connector


def vllm_config(role: str = "kv_producer", extra: dict[str, Any] | None = None, **parallel: Any) -> Any:
    model = SimpleNamespace(
        model="tiny",
        get_num_experts=lambda: 4,
        get_num_experts_per_tok=lambda: 2,
        get_total_num_hidden_layers=lambda: 2,
        max_model_len=MAX_MODEL_LEN,
    )
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector="EldrConnector", kv_role=role, kv_connector_extra_config=extra or {}),
        model_config=model,
        parallel_config=SimpleNamespace(**({"pipeline_parallel_size": 1, "data_parallel_rank": 0} | parallel)),
        cache_config=SimpleNamespace(block_size=4),
        speculative_config=None,
    )


def kv_cache_config(*specs: Any) -> Any:
    groups = [SimpleNamespace(kv_cache_spec=spec, layer_names=[f"layer{n}"]) for n, spec in enumerate(specs)]
    return SimpleNamespace(kv_cache_groups=groups, num_blocks=8)
