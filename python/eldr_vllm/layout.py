"""Size and shape of the store: the experts of every KV slot, [slots][layers][top_k], and a flag that says whether
they are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    layers: int
    experts: int
    top_k: int
    blocks: int
    block_size: int
    half_life: float | None = None

    @property
    def id_bytes(self) -> int:
        return 1 if self.experts <= 256 else 2

    @property
    def slots(self) -> int:
        return self.blocks * self.block_size

    @property
    def slot_bytes(self) -> int:
        return self.layers * self.top_k * self.id_bytes + 1  # + 1: the flag

    @property
    def nbytes(self) -> int:
        """Includes one scratch slot, to which padding is written."""
        return (self.slots + 1) * self.slot_bytes


def human(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"
