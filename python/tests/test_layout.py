"""Size of the store, and choice of its form."""

from __future__ import annotations

import pytest

from eldr_vllm.layout import Form, Layout, choose, human
from eldr_vllm.store import NumpyStore

QWEN3_30B = Layout(layers=48, experts=128, top_k=8, blocks=1000, block_size=16)
# 48 layers × (keys and values) × 4 heads × 128 × 2 bytes
QWEN3_30B_KV_TOKEN = 48 * 2 * 4 * 128 * 2


def test_takes_at_most_half_a_percent_of_the_kv_cache_of_qwen3_30b_at_blocks_of_16() -> None:
    layout = choose(QWEN3_30B)
    share = layout.nbytes / (layout.blocks * layout.block_size * QWEN3_30B_KV_TOKEN)
    assert layout.form == "slots"
    assert layout.block_bytes == 16 * (48 * 8 + 1)
    assert share == pytest.approx(0.00392, abs=2e-5)
    assert share <= 0.005


@pytest.mark.parametrize(
    ("name", "layers", "experts", "top_k", "size", "form", "token_bytes"),
    [
        ("Qwen3-30B-A3B, vLLM's block of 16", 48, 128, 8, 16, "slots", 385),
        ("the same on a CPU, blocks of 128", 48, 128, 8, 128, "blocks", 48.02),
        ("GPT-OSS-120B", 36, 128, 4, 16, "slots", 145),
        ("DeepSeek-V3, blocks of 64", 58, 256, 8, 64, "blocks", 232.03),
        ("384 experts", 60, 384, 8, 16, "slots", 961),
        ("the tiny model, blocks of 16", 6, 64, 8, 16, "blocks", 24.125),
    ],
)
def test_chooses_the_smaller_form(name: str, layers: int, experts: int, top_k: int, size: int, form: Form, token_bytes: float) -> None:
    layout = choose(Layout(layers, experts, top_k, 10, size))
    assert layout.form == form, name
    assert layout.block_bytes / size == pytest.approx(token_bytes, abs=0.01), name


@pytest.mark.parametrize("half_life", [None, 64])
@pytest.mark.parametrize(("experts", "top_k", "size"), [(128, 8, 16), (64, 8, 16), (256, 8, 32), (384, 8, 16), (16, 1, 16), (128, 8, 17)])
def test_layers_do_not_change_the_form(experts: int, top_k: int, size: int, half_life: float | None) -> None:
    assert len({choose(Layout(layers, experts, top_k, 10, size, half_life)).form for layers in (1, 2, 3, 12, 48, 94)}) == 1


def test_recent_rows_make_counts_per_block_larger() -> None:
    deep_seek = Layout(58, 256, 8, 10, 64, half_life=64)
    assert choose(deep_seek).form == "slots"


@pytest.mark.parametrize("wanted", [None, "blocks"])
def test_keeps_ids_if_slots_are_computed_twice_or_read_back(wanted: Form | None) -> None:
    deep_seek = Layout(58, 256, 8, 10, 64)
    assert choose(deep_seek, rewrites=True, wanted=wanted).form == "slots"
    assert choose(deep_seek, wanted=wanted).form == "blocks"


def test_keeps_ids_if_weights_within_a_block_underflow() -> None:
    assert choose(Layout(6, 64, 8, 10, 128, half_life=1), wanted="blocks").form == "slots"
    assert choose(Layout(6, 64, 8, 10, 128, half_life=64), wanted="blocks").form == "blocks"


@pytest.mark.parametrize("form", ["slots", "blocks"])
@pytest.mark.parametrize("half_life", [None, 64])
@pytest.mark.parametrize(("experts", "size"), [(64, 16), (256, 128), (257, 16), (64, 256)])
def test_computes_the_size_of_the_arrays(form: Form, half_life: float | None, experts: int, size: int) -> None:
    layout = Layout(3, experts, 4, 7, size, half_life, form)
    assert NumpyStore(layout).nbytes == layout.blocks * layout.block_bytes


def test_formats_sizes() -> None:
    assert [human(n) for n in (0, 1023, 1536, 3 * 2**20, 5.5 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.50 GiB"]
