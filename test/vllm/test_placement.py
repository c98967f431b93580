"""A placement one level below a server: the CPU build's kernel assumes a linear placement regardless of its map, so this tests vLLM's
layer class with the plugin: each rank's map, the weights it loads, and that the ranks' outputs add up to the whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_parallel import EXPERTS, LAYERS, write_placement
from vllm.model_executor.layers.fused_moe.config import FusedMoEParallelConfig
from vllm.model_executor.layers.fused_moe.expert_map_manager import ExpertMapManager
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

import eldr_vllm
from eldr_vllm.placement_file import read_placement

RANKS, TOP_K, WIDTH = 4, 8, 16


def built(rank: int, layer: int) -> Any:
    """The layer as vLLM builds it, before weights are created."""
    parallel = FusedMoEParallelConfig(RANKS, 1, 1, RANKS, rank, 0, 0, rank, 1, True, "allgather_reducescatter", False)
    experts = RoutedExperts.__new__(RoutedExperts)
    torch.nn.Module.__init__(experts)
    experts.layer_name = f"model.layers.{layer}.mlp.experts"
    experts.expert_map_manager = ExpertMapManager(64, TOP_K, EXPERTS, 0, None, parallel, "linear", False)
    experts.update_expert_map_info()
    return experts


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = write_placement(tmp_path / "p.safetensors", RANKS)
    eldr_vllm.register()
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector="EldrConnector", kv_role="kv_consumer", kv_connector_extra_config={"placement": str(file), "cluster": 1}
        ),
        model_config=SimpleNamespace(
            model="tiny", hf_text_config=SimpleNamespace(decoder_sparse_step=1), get_total_num_hidden_layers=lambda: LAYERS
        ),
        parallel_config=SimpleNamespace(enable_expert_parallel=True, enable_eplb=False),
    )
    monkeypatch.setattr("vllm.config.get_current_vllm_config", lambda: config)
    return read_placement(file)


def test_each_rank_holds_the_experts_of_the_file(placement: Any) -> None:
    for layer in range(LAYERS):
        for rank in range(RANKS):
            experts = built(rank, layer)
            wanted = placement.experts_of(1, layer, rank)
            assert experts.expert_map_manager.get_local_expert_ids() == sorted(wanted)
            assert [experts._map_global_expert_id_to_local_expert_id(expert) for expert in wanted] == list(range(EXPERTS // RANKS))
            assert experts._expert_map.tolist() == [wanted.index(e) if e in wanted else -1 for e in range(EXPERTS)]


def test_the_ranks_outputs_add_up_to_the_whole(placement: Any) -> None:
    torch.manual_seed(0)
    weights, hidden = torch.randn(EXPERTS, WIDTH, WIDTH, dtype=torch.float64), torch.randn(5, WIDTH, dtype=torch.float64)
    gates, ids = torch.rand(5, EXPERTS, dtype=torch.float64).topk(TOP_K)
    whole = torch.einsum("tk,tkij,tj->ti", gates, weights[ids], hidden)
    total = torch.zeros_like(whole)
    for rank in range(RANKS):
        experts = built(rank, 3)
        local = torch.empty(EXPERTS // RANKS, WIDTH, WIDTH, dtype=torch.float64)
        for expert in range(EXPERTS):  # like the weight loader
            at = experts._map_global_expert_id_to_local_expert_id(expert)
            if at != -1:
                local[at] = weights[expert]
        place = experts._expert_map.long()[ids]  # like a kernel
        total += torch.einsum("tk,tkij,tj->ti", gates * (place >= 0), local[place.clamp_min(0)], hidden)
    torch.testing.assert_close(total, whole)
