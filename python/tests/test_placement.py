from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eldr_vllm import binding
from eldr_vllm.config import Config
from eldr_vllm.placement import check_fits, check_placed, local_map, moe_layer_ids
from eldr_vllm.placement_file import PlacementError, read_placement

CLUSTERS, LAYERS, EXPERTS, RANKS = 2, 3, 8, 4


def arrays(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    each = EXPERTS // RANKS
    order = rng.permuted(np.tile(np.arange(EXPERTS, dtype="<u2"), (CLUSTERS, LAYERS, 1)), axis=2)
    order = np.sort(order.reshape(CLUSTERS, LAYERS, RANKS, each), axis=3).reshape(CLUSTERS, LAYERS, EXPERTS)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order.astype(int), np.broadcast_to(np.arange(EXPERTS) // each, order.shape).astype("<u2"), axis=2)
    return {"rank": rank, "order": order}


def write(path: Path, tensors: dict[str, Any], **metadata: str) -> Path:
    header: dict[str, Any] = {
        "__metadata__": {"format": "eldr.placement.v1", "model": "tiny6", "clusters": f"{CLUSTERS}", "layers": f"{LAYERS}",
                         "experts": f"{EXPERTS}", "ranks": f"{RANKS}", **metadata}
    }  # fmt: skip
    data = b""
    for name, array in tensors.items():
        dtype = {"u": "U16", "i": "I32"}[array.dtype.kind]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_each_rank_gets_the_experts_of_its_slots(tmp_path: Path) -> None:
    tensors = arrays()
    placement = read_placement(write(tmp_path / "p", tensors))
    for cluster in range(CLUSTERS):
        for layer in range(LAYERS):
            lists = [placement.experts_of(cluster, layer, rank) for rank in range(RANKS)]
            assert sorted(expert for experts in lists for expert in experts) == list(range(EXPERTS))
            for rank, experts in enumerate(lists):
                assert all(tensors["rank"][cluster, layer, expert] == rank for expert in experts)


def test_the_map_has_the_local_index_of_each_expert(tmp_path: Path) -> None:
    placement = read_placement(write(tmp_path / "p", arrays()))
    for rank in range(RANKS):
        values = local_map(placement, 1, 2, rank)
        local = placement.experts_of(1, 2, rank)
        assert [values[expert] for expert in local] == list(range(len(local)))
        assert [value for expert, value in enumerate(values) if expert not in local] == [-1] * (EXPERTS - len(local))


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ((0, 4, EXPERTS, RANKS), "3 MoE layers (made for 'tiny6'); this engine of 'm' has 4"),
        ((0, LAYERS, 16, RANKS), "8 experts (made for 'tiny6'); this engine of 'm' has 16"),
        ((0, LAYERS, EXPERTS, 2), "4 ranks (made for 'tiny6'); this engine of 'm' has 2"),
        ((2, LAYERS, EXPERTS, RANKS), "cluster 2; the file has 2, from 0"),
    ],
)
def test_a_file_for_another_engine_is_rejected(tmp_path: Path, engine: tuple[int, int, int, int], message: str) -> None:
    placement = read_placement(write(tmp_path / "p", arrays()))
    check_fits(placement, 1, LAYERS, EXPERTS, RANKS, "m")
    with pytest.raises(PlacementError) as error:
        check_fits(placement, *engine, "m")
    assert message in str(error.value)


def test_broken_files_are_rejected_with_a_reason(tmp_path: Path) -> None:
    def refused(path: Path, message: str) -> None:
        with pytest.raises(PlacementError) as error:
            read_placement(path)
        assert message in str(error.value)
        assert str(path) in str(error.value)

    refused(tmp_path / "none", "cannot be read (No such file or directory)")
    (tmp_path / "short").write_bytes(b"abc")
    refused(tmp_path / "short", "not a safetensors file")
    (tmp_path / "text").write_bytes(struct.pack("<Q", 4) + b"{{{{")
    refused(tmp_path / "text", "not a safetensors file")
    (tmp_path / "long").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(tmp_path / "long", "not a safetensors file")
    refused(write(tmp_path / "a", arrays(), format="eldr.artifact.v1"), "format 'eldr.artifact.v1'; expected 'eldr.placement.v1'")
    refused(write(tmp_path / "b", arrays(), ranks="3"), "3 ranks for 8 experts")
    refused(write(tmp_path / "c", arrays(), layers="x"), "metadata layers is 'x'")
    refused(write(tmp_path / "d", {"order": arrays()["order"]}), "tensor rank is none")
    refused(write(tmp_path / "e", arrays() | {"rank": arrays()["rank"].astype("<i4")}), "tensor rank is I32")
    twice = arrays()
    twice["order"][1, 2, :2] = twice["order"][1, 2, 0]
    refused(write(tmp_path / "f", twice), "cluster 1, layer 2: an expert is missing or occurs twice")
    other = arrays()
    other["rank"][0, 1] = np.roll(other["rank"][0, 1], 1)
    refused(write(tmp_path / "g", other), "cluster 0, layer 1: tensors order and rank disagree")
    whole = write(tmp_path / "h", arrays()).read_bytes()
    (tmp_path / "h").write_bytes(whole[:-1])
    refused(tmp_path / "h", "bytes within them")


@pytest.mark.parametrize(
    ("config", "hidden", "ids"),
    [
        ({"decoder_sparse_step": 1, "mlp_only_layers": []}, 3, [0, 1, 2]),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, 6, [1, 5]),
        ({"first_k_dense_replace": 2, "moe_layer_freq": 1}, 5, [2, 3, 4]),
        ({"moe_layer_freq": [0, 1, 1]}, 3, [1, 2]),
        ({}, 2, [0, 1]),
        ({"interleave_moe_layer_step": 2, "moe_layers": [0]}, 5, [1, 3]),  # Llama 4, as vLLM builds it
        ({"interleave_moe_layer_step": 1}, 3, [0, 1, 2]),
        ({"interleave_moe_layer_step": 0}, 3, []),
        ({"moe_layers": [3, 1]}, 4, [1, 3]),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 1}, 6, [1, 2, 3]),  # ERNIE
        ({"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 2}, 6, [1, 3, 5]),
        ({"moe_layer_start_index": 2}, 4, [2, 3]),
        ({"moe_layer_start_index": [2, 1], "moe_layer_end_index": [3, 2]}, 6, [1, 2, 3]),
        ({"num_dense_layers": 2}, 5, [2, 3, 4]),  # AFMoE
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 5, [1, 3]),  # Jamba
        ({"expert_layer_period": 3, "expert_layer_offset": 0}, 5, [0, 3]),
    ],
)
def test_moe_layers_from_the_models_configuration(config: dict[str, Any], hidden: int, ids: list[int]) -> None:
    assert moe_layer_ids(SimpleNamespace(**config), hidden) == ids


def test_layers_missing_in_the_configuration_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(ids: list[int], stage: tuple[int, int] = (0, 6)) -> None:
        experts = SimpleNamespace(_eldr_placed=True)
        kernel = SimpleNamespace(supports_expert_map=lambda: True)
        found = [SimpleNamespace(layer_id=n, layer_name=f"l{n}", routed_experts=experts, _quant_method=kernel) for n in ids]
        monkeypatch.setattr(binding, "moe_runners", lambda _: found)
        model = SimpleNamespace(
            hf_text_config=SimpleNamespace(first_k_dense_replace=2),
            get_total_num_hidden_layers=lambda: 6,
            get_layers_start_end_indices=lambda _: stage,
        )
        config = Config(capture=True, metrics=False, placement="p", cluster=0)
        check_placed(SimpleNamespace(model_config=model, parallel_config=None), config)

    check([2, 3, 4, 5])
    check([2], (0, 3))
    check([3, 4, 5], (3, 6))
    with pytest.raises(PlacementError, match=r"p: layers \[3, 5\] route experts, expected \[2, 3, 4, 5\]"):
        check([3, 5])
