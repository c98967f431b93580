"""Reads the placement that `eldr fit --ranks` writes (docs/reference/files.md, "Placement"): the rank of each
expert, per cluster and layer."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FORMAT: Final = "eldr.placement.v1"
_MAX_HEADER: Final = 100 * 2**20


class PlacementError(ValueError):
    """Stops the start of the server. The message says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Placement:
    """order: [clusters, layers, experts]: the experts of rank 0, then of rank 1, and so on, in increasing
    order within a rank."""

    path: str
    model: str
    ranks: int
    order: npt.NDArray[np.uint16]

    @property
    def clusters(self) -> int:
        return int(self.order.shape[0])

    @property
    def layers(self) -> int:
        return int(self.order.shape[1])

    @property
    def experts(self) -> int:
        return int(self.order.shape[2])

    def experts_of(self, cluster: int, layer: int, rank: int) -> list[int]:
        """Logical experts on a rank, in the order of its local slots. layer: index among the MoE layers."""
        each = self.experts // self.ranks
        return [int(expert) for expert in self.order[cluster, layer, rank * each : (rank + 1) * each]]


def read_placement(path: str | Path) -> Placement:
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise PlacementError(f"{path}: cannot be read ({error.strerror or error})") from error
    header, data = _header(str(path), raw)
    metadata = header.get("__metadata__", {})
    if metadata.get("format") != FORMAT:
        raise PlacementError(f"{path}: format {metadata.get('format')!r}; expected {FORMAT!r}, as eldr fit --ranks writes it")
    shape = tuple(_number(str(path), metadata, key) for key in ("clusters", "layers", "experts"))
    ranks = _number(str(path), metadata, "ranks")
    if shape[2] % ranks != 0:
        raise PlacementError(f"{path}: {ranks} ranks for {shape[2]} experts; expected a number that divides them evenly")
    order, rank = (_tensor(str(path), header, data, name, shape) for name in ("order", "rank"))
    _check(str(path), order, rank, ranks)
    return Placement(str(path), str(metadata.get("model", "")), ranks, order)


def _header(path: str, raw: bytes) -> tuple[dict[str, Any], bytes]:
    broken = PlacementError(f"{path}: not a safetensors file")
    if len(raw) < 8:
        raise broken
    (length,) = struct.unpack("<Q", raw[:8])
    if length > min(_MAX_HEADER, len(raw) - 8):
        raise broken
    try:
        header = json.loads(raw[8 : 8 + length])
    except ValueError as error:
        raise broken from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise broken
    return header, raw[8 + length :]


def _number(path: str, metadata: dict[str, Any], key: str) -> int:
    text = metadata.get(key)
    if not isinstance(text, str) or not text.isdigit() or int(text) == 0:
        raise PlacementError(f"{path}: metadata {key} is {text!r}; expected a whole number from 1")
    return int(text)


def _tensor(path: str, header: dict[str, Any], data: bytes, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    info = header.get(name)
    if not isinstance(info, dict) or info.get("dtype") != "U16" or tuple(info.get("shape", ())) != shape:
        found = "none" if not isinstance(info, dict) else f"{info.get('dtype')} {info.get('shape')}"
        raise PlacementError(f"{path}: tensor {name} is {found}; expected U16 {list(shape)}")
    offsets = info.get("data_offsets")
    size = 2 * int(np.prod(shape))
    if not (
        isinstance(offsets, list) and len(offsets) == 2 and offsets[0] >= 0 and offsets[1] - offsets[0] == size and offsets[1] <= len(data)
    ):
        raise PlacementError(f"{path}: tensor {name} lies at {offsets} of {len(data)} bytes; expected {size} bytes within them")
    return np.frombuffer(data[offsets[0] : offsets[1]], "<u2").reshape(shape).astype(np.uint16)


def _check(path: str, order: npt.NDArray[np.uint16], rank: npt.NDArray[np.uint16], ranks: int) -> None:
    experts = order.shape[2]
    each_once = (np.sort(order, axis=2) == np.arange(experts)).all(axis=2)
    for cluster, layer in np.argwhere(~each_once)[:1]:
        raise PlacementError(f"{path}: cluster {cluster}, layer {layer}: an expert is missing or occurs twice; expected each once")
    slot_rank = np.arange(experts) * ranks // experts
    agrees = (np.take_along_axis(rank, order.astype(np.int64), axis=2) == slot_rank).all(axis=2)
    for cluster, layer in np.argwhere(~agrees)[:1]:
        raise PlacementError(f"{path}: cluster {cluster}, layer {layer}: tensors order and rank disagree about the rank of an expert")
