"""Measures the cost of capture on a GPU with plain torch: the hooks and the scatter of a step, the sums of
prompts that end, and their copy to the host. Uses the paper's shape (48 layers, 128 experts, top 8, blocks of
16) for comparison with its Table 1. First checks the timed code on the device: eager, as one CUDA graph, and
as one graph per layer (checks.py).

python python/bench/capture.py [--json FILE] [--markdown FILE]

"device" is GPU time, measured by events around work that was queued during a pause, so that it includes no
launch delay; any call that waits for the device fails the run (torch.cuda.set_sync_debug_mode). "host" is the
time that Python needs for the launches, which is hidden while the GPU is busy. All values are medians."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from checks import check_all
from table import markdown

from eldr_vllm.capture import Capture
from eldr_vllm.layout import Form, Layout
from eldr_vllm.store import End
from eldr_vllm.torch_store import TorchStore

LAYERS, EXPERTS, TOP_K, SIZE, BLOCKS = 48, 128, 8, 16, 32_768
STEPS, ENDS, WARM_UPS, REPEATS = (512, 2048, 8192), (1, 4, 16), 20, 100
PAUSE_CYCLES = 8_000_000  # about 4 ms: longer than the host needs to queue the timed work
KV_BYTES = BLOCKS * SIZE * LAYERS * 2 * 4 * 128 * 2  # Qwen3-30B-A3B: keys and values of 4 heads of 128, bf16


def timed(run: Callable[[], Any]) -> dict[str, float]:
    device, host = [], []
    for _ in range(WARM_UPS + REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(PAUSE_CYCLES)
        torch.cuda.set_sync_debug_mode("error")
        start.record()
        kept = run()
        end.record()
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        del kept
        device.append(start.elapsed_time(end))
    for _ in range(WARM_UPS + REPEATS):
        begin = time.perf_counter()
        kept = run()
        host.append((time.perf_counter() - begin) * 1e3)
        torch.cuda.synchronize()
        del kept
    return {"device_ms": statistics.median(device[WARM_UPS:]), "host_ms": statistics.median(host[WARM_UPS:])}


def measured(form: Form, half_life: float | None) -> list[dict[str, Any]]:
    store = TorchStore(Layout(LAYERS, EXPERTS, TOP_K, BLOCKS, SIZE, half_life, form), "cuda")
    about = {"form": form, "half_life": half_life}
    rng = np.random.default_rng(0)
    table = rng.permutation(BLOCKS)
    out: list[dict[str, Any]] = []
    for tokens in STEPS:
        slots = torch.from_numpy((table[: tokens // SIZE, None] * SIZE + np.arange(SIZE)).ravel()).cuda()
        capture = Capture(LAYERS, EXPERTS, TOP_K, tokens, "cuda", store, lambda slots=slots: slots)
        hooks = [capture.hook(layer) for layer in range(LAYERS)]
        ids = [torch.rand(tokens, EXPERTS, device="cuda").topk(TOP_K, dim=1).indices.to(torch.int32) for _ in range(LAYERS)]

        def record(hooks: Any = hooks, ids: Any = ids) -> None:
            for hook, of_layer in zip(hooks, ids, strict=True):
                hook(of_layer)

        record()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            record()
        assert capture.off is None, capture.off
        out += [
            {"what": "record", "how": how, "tokens": tokens} | about | timed(run)
            for how, run in (("eager", record), ("graph", graph.replay))
        ]
        fresh = [int(block) for block in table[: tokens // SIZE]]
        out.append({"what": "reset", "tokens": tokens} | about | timed(lambda fresh=fresh: store.reset(fresh)))
    kernel = store._summing.kernel
    for tokens in STEPS:
        for count in ENDS:
            ends = [End([int(block) for block in rng.permutation(BLOCKS)[: tokens // SIZE]], tokens) for _ in range(count)]
            for how, with_kernel in (("kernel", kernel), ("plain", None)):
                store._summing.kernel = with_kernel
                row = {"what": "sum and copy", "how": how, "tokens": tokens, "ends": count}
                out.append(row | about | timed(lambda ends=ends: store.sums(ends)))
    store._summing.kernel = kernel
    if half_life is None:
        capture = Capture(LAYERS, EXPERTS, TOP_K, 256, "cuda", None, lambda: None)
        out.append({"what": "distinct", "tokens": 256} | about | timed(lambda: capture.distinct(256)))
    return [*out, {"what": "memory", "bytes": store.nbytes, "share_of_kv": store.nbytes / KV_BYTES} | about]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    check_all("cuda")
    rows = [row for form in ("slots", "blocks") for half_life in (None, 64.0) for row in measured(form, half_life)]
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "repeats": REPEATS, "rows": rows}
    text = markdown(about)
    print(text)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(text)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(about, file, indent=1)


if __name__ == "__main__":
    main()
