"""A second capture in the same forward pass. Each router's hook also copies the experts into a buffer of its own,
which a CUDA graph records and replays like the plugin's work. When the only prompt of a step ends there, its counts
are made from that buffer and compared with the plugin's. Two servers may choose differently; this cannot.

Waits for the device at the end of every prompt."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import torch

# Of a step.
_MAX_ROWS = 8192


class Twin:
    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: dict[int, Any] = {}  # by layer id, [rows, top_k]
        self.prompts = self.choices = self.differing = 0
        self.by_layer: list[int] = []

    def add_layer(self, layer_id: int, top_k: int) -> None:
        """Before graphs are recorded, which must not allocate the buffer."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._kept[layer_id] = torch.full((_MAX_ROWS, top_k), -1, dtype=torch.int32, device=device)

    def keep(self, layer_id: int, ids: Any) -> None:
        rows = min(_MAX_ROWS, ids.shape[0])
        self._kept[layer_id][:rows].copy_(ids[:rows])

    def compare(self, tokens: int, counts: Any) -> None:
        """counts: the plugin's, [layers, experts]."""
        experts = counts.shape[1]
        own = [self._kept[layer][:tokens].cpu().numpy().ravel() for layer in sorted(self._kept)]
        mine = np.stack([np.bincount(ids, minlength=experts) for ids in own])
        missing, extra = (np.maximum(change, 0).sum(axis=1) for change in (mine - counts, counts - mine))
        differing = np.maximum(missing, extra)
        self.by_layer = [int(value) for value in differing + np.array(self.by_layer or [0] * len(differing))]
        self.prompts += 1
        self.choices += int(mine.sum())
        self.differing = sum(self.by_layer)
        with open(f"{self._path}.new", "w") as file:
            json.dump({"prompts": self.prompts, "choices": self.choices, "differing": self.differing, "byLayer": self.by_layer}, file)
        os.replace(f"{self._path}.new", self._path)


def install(path: str) -> None:
    from eldr_vllm.binding import Routed
    from eldr_vllm.worker import Worker

    twin = Twin(path)
    bind, part_of = Routed.bind, Worker._part

    def bind_both(routed: Any, hook: Any, fail: Any) -> None:
        twin.add_layer(routed.layer_id, routed.router.top_k)

        def keep_both(ids: Any) -> None:
            twin.keep(routed.layer_id, ids)
            hook(ids)

        bind(routed, keep_both, fail)

    def part_and_compare(worker: Any, meta: Any, store: Any) -> Any:
        part = part_of(worker, meta, store)
        ends = list(meta.ends.values())
        if len(ends) == 1 and ends[0].tokens == meta.tokens and part.sums is not None:
            twin.compare(meta.tokens, part.sums.get().counts[0])
        return part

    Routed.bind = bind_both
    Worker._part = part_and_compare
