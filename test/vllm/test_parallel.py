"""Two tensor-parallel ranks: one reports; a placement without effect is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import prompts
from servers import Server, eldr, running, vllm
from test_counts import asked, check

LAYERS, EXPERTS = 6, 64
# Two ranks are two processes, so the in-process executor cannot be used.
TWO = ("--tensor-parallel-size", "2")
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


def write_placement(path: Path, ranks: int = 2) -> Path:
    """Two clusters of random placements."""
    rng = np.random.default_rng(5)
    order = rng.permuted(np.tile(np.arange(EXPERTS, dtype="<u2"), (2, LAYERS, 1)), axis=2)
    order = np.sort(order.reshape(2, LAYERS, ranks, -1), axis=3).reshape(2, LAYERS, EXPERTS)
    rank = np.empty_like(order)
    slots = np.broadcast_to(np.arange(EXPERTS) * ranks // EXPERTS, order.shape).astype("<u2")
    np.put_along_axis(rank, order.astype(int), slots, axis=2)
    metadata = {
        "format": "eldr.placement.v1",
        "model": "tiny6",
        "clusters": "2",
        "layers": f"{LAYERS}",
        "experts": f"{EXPERTS}",
        "ranks": f"{ranks}",
    }
    size = rank.nbytes
    header: dict[str, Any] = {"__metadata__": metadata}
    for name, first in (("rank", 0), ("order", size)):
        header[name] = {"dtype": "U16", "shape": list(rank.shape), "data_offsets": [first, first + size]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rank.tobytes() + order.tobytes())
    return path


def test_one_rank_reports(folder: Path) -> None:
    with running(vllm("two-ranks", folder, eldr("kv_producer", store="slots", half_life=64), *TWO, **ENVIRONMENT)) as (server,):
        for prompt in prompts()[:6]:
            check(asked(server, prompt), prompt, {"half_life": 64})
        assert server.log.read_text().count("eldr: capturing") == 1


# Files for another engine are refused in python/tests/test_placement.py.
REFUSED: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "not-spread": ({}, (), "experts are not spread over ranks"),
    # The CPU build's kernel assumes a linear placement, so the placement itself is tested one level below, in test_placement.py.
    "kernel": (ENVIRONMENT, (*TWO, "--enable-expert-parallel"), "takes no expert map; choose another --moe-backend"),
}


@pytest.fixture(scope="module")
def refused(folder: Path) -> Iterator[dict[str, Server]]:
    """All at once: they exit before they use much memory."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:
        for name, (environment, flags, _) in REFUSED.items():
            transfer = eldr("kv_producer", placement=str(write_placement(folder / f"{name}.safetensors")), cluster=0)
            started[name] = vllm(f"refused-{name}", folder, transfer, *flags, **environment)
            stack.callback(started[name].stop)
        yield started


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_placement_that_cannot_take_effect_stops_the_server(refused: dict[str, Server], name: str) -> None:
    with pytest.raises(RuntimeError, match="ended with"):
        refused[name].wait_until_ready()
    assert refused[name].logged(REFUSED[name][2]), refused[name].tail()
