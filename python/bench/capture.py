"""What capture costs on a GPU, with plain torch: the hooks' copies and the scatter of a step, the sums of prompts that end, and their way
to the host. The paper's shape (48 layers, 128 experts, top 8, blocks of 16), against its Table 1.

    python python/bench/capture.py [--json FILE]

Times are medians over repeats, by CUDA events; "host" is how long Python was kept busy. Eager, and replayed from a CUDA graph where that is
how vLLM runs it. Any call that waits for the device fails the run (torch.cuda.set_sync_debug_mode)."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from eldr_vllm.capture import Capture
from eldr_vllm.layout import Form, Layout
from eldr_vllm.store import End
from eldr_vllm.torch_store import TorchStore

LAYERS, EXPERTS, TOP_K, SIZE, BLOCKS = 48, 128, 8, 16, 32_768
STEPS, ENDS, REPEATS = (512, 2048, 8192), (1, 4, 16), 50


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """(device ms, host ms), medians."""
    device, host = [], []
    for _ in range(REPEATS + 5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        begin = time.perf_counter()
        start.record()
        kept = run()
        end.record()
        host.append((time.perf_counter() - begin) * 1e3)
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        del kept
        device.append(start.elapsed_time(end))
    return statistics.median(device[5:]), statistics.median(host[5:])


def measured(form: Form, half_life: float | None) -> list[dict[str, Any]]:
    layout = Layout(LAYERS, EXPERTS, TOP_K, BLOCKS, SIZE, half_life, form)
    store = TorchStore(layout, "cuda")
    rng = np.random.default_rng(0)
    table = rng.permutation(BLOCKS)
    out: list[dict[str, Any]] = []
    for tokens in STEPS:
        slots = torch.from_numpy((table[: tokens // SIZE, None] * SIZE + np.arange(SIZE)).ravel()).cuda()
        capture = Capture(LAYERS, EXPERTS, TOP_K, tokens, "cuda", store, lambda slots=slots: slots)
        hooks = [capture.hook(layer) for layer in range(LAYERS)]
        scores = torch.rand(LAYERS, tokens, EXPERTS, device="cuda")
        ids = scores.topk(TOP_K, dim=2).indices.to(torch.int32)
        del scores

        def record(hooks: Any = hooks, ids: Any = ids) -> None:
            for layer, hook in enumerate(hooks):
                hook(ids[layer])

        record()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            record()
        assert capture.off is None, capture.off
        for how, run in (("eager", record), ("graph", graph.replay)):
            device_ms, host_ms = timed(run)
            row = {"what": "record", "how": how, "tokens": tokens, "device_ms": device_ms, "host_ms": host_ms}
            out.append(row | {"form": form, "half_life": half_life})
        fresh = [int(block) for block in table[: tokens // SIZE]]
        device_ms, host_ms = timed(lambda fresh=fresh: store.reset(fresh))
        out.append({"what": "reset", "tokens": tokens, "device_ms": device_ms, "host_ms": host_ms, "form": form, "half_life": half_life})
    for tokens in STEPS:
        for count in ENDS:
            ends = [End([int(block) for block in rng.permutation(BLOCKS)[: tokens // SIZE]], tokens) for _ in range(count)]
            device_ms, host_ms = timed(lambda ends=ends: store.sums(ends))
            row = {"what": "sum and copy", "tokens": tokens, "ends": count, "device_ms": device_ms, "host_ms": host_ms}
            out.append(row | {"form": form, "half_life": half_life})
    kv = BLOCKS * SIZE * LAYERS * 2 * 4 * 128 * 2
    out.append({"what": "memory", "form": form, "half_life": half_life, "bytes": store.nbytes, "share_of_kv": store.nbytes / kv})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = [row for form in ("slots", "blocks") for half_life in (None, 64.0) for row in measured(form, half_life)]
    for row in rows:
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
    if options.json:
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "repeats": REPEATS, "rows": rows}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(about, file, indent=1)


if __name__ == "__main__":
    main()
