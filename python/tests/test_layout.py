"""Size of the store."""

from __future__ import annotations

import pytest

from eldr_vllm.layout import Layout, human
from eldr_vllm.store import NumpyStore


@pytest.mark.parametrize(
    ("name", "layers", "experts", "top_k", "kv_bytes", "bytes_per_token", "share"),
    [
        # KV bytes of a token: layers × (keys and values) × heads × size of a head × bytes of a number
        ("Qwen3-30B-A3B", 48, 128, 8, 48 * 2 * 4 * 128 * 2, 385, 0.004),
        ("GPT-OSS-120B", 36, 128, 4, 36 * 2 * 8 * 64 * 2, 145, 0.002),
        ("DeepSeek-V3: one compressed vector per layer", 58, 256, 8, 61 * 576 * 2, 465, 0.007),
        ("Kimi K2: 384 experts, ids of two bytes", 60, 384, 8, 61 * 576 * 2, 961, 0.014),
    ],
)
def test_is_a_small_share_of_the_kv_cache(
    name: str, layers: int, experts: int, top_k: int, kv_bytes: int, bytes_per_token: int, share: float
) -> None:
    layout = Layout(layers, experts, top_k, 1000, 16)
    assert layout.slot_bytes == bytes_per_token, name
    assert layout.nbytes / (layout.slots * kv_bytes) == pytest.approx(share, abs=5e-4), name


@pytest.mark.parametrize(("experts", "size"), [(64, 16), (256, 128), (257, 16)])
def test_computes_the_size_of_the_arrays(experts: int, size: int) -> None:
    layout = Layout(3, experts, 4, 7, size)
    assert NumpyStore(layout).nbytes == layout.slots * layout.slot_bytes


def test_formats_sizes() -> None:
    assert [human(n) for n in (0, 1023, 1536, 3 * 2**20, 5.5 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.50 GiB"]
