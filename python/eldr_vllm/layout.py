"""Chooses the form of the store: ids per slot ([slots][layers][top_k], overwritten each time a slot is
computed) or counts per block ([blocks][layers][experts], incremented). The smaller form is used. If their
sizes are about equal, ids are used: they stay correct when a slot is computed twice, and decode ids can be
read from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Form = Literal["slots", "blocks"]
# Ids are preferred up to this ratio of sizes: at 128 experts, top 8 and blocks of 16 the forms differ by 14
# bytes of 6,160.
PREFER_SLOTS: Final = 1.05
# A block's recent row holds 2^(−(blockEnd − t)/h) in 32-bit floats, which underflow near 2^−126.
_LEAST_EXPONENT: Final = 100


@dataclass(frozen=True, slots=True)
class Layout:
    layers: int
    experts: int
    top_k: int
    blocks: int
    block_size: int
    half_life: float | None = None
    form: Form = "slots"

    @property
    def id_bytes(self) -> int:
        return 1 if self.experts <= 256 else 2

    @property
    def count_bytes(self) -> int:
        """A token uses an expert at most once, so a count is at most the block size."""
        return 1 if self.block_size <= 255 else 2

    @property
    def block_bytes(self) -> int:
        if self.form == "slots":
            return self.block_size * (self.layers * self.top_k * self.id_bytes + 1)  # + 1: known flag of the slot
        recent = 0 if self.half_life is None else 4
        return self.layers * self.experts * (self.count_bytes + recent) + 2  # + 2: number of known tokens

    @property
    def nbytes(self) -> int:
        """Includes one scratch row, to which padding is written."""
        scratch = self.layers * self.top_k * self.id_bytes + 1 if self.form == "slots" else self.block_bytes
        return self.blocks * self.block_bytes + scratch


def with_form(layout: Layout, form: Form) -> Layout:
    return Layout(layout.layers, layout.experts, layout.top_k, layout.blocks, layout.block_size, layout.half_life, form)


def choose(layout: Layout, rewrites: bool = False, wanted: Form | None = None) -> Layout:
    """rewrites: slots may be computed more than once, or their ids must be read back; then only ids per slot
    work. Compares the sizes for one layer, so that all pipeline stages and the scheduler, which has no
    layers, choose the same form."""
    slots, blocks = with_form(layout, "slots"), with_form(layout, "blocks")
    too_steep = layout.half_life is not None and layout.block_size > _LEAST_EXPONENT * layout.half_life
    if rewrites or too_steep or wanted == "slots":
        return slots
    if wanted == "blocks":
        return blocks
    recent = 0 if layout.half_life is None else 4
    ids, counts = layout.block_size * layout.top_k * layout.id_bytes, layout.experts * (layout.count_bytes + recent)
    return slots if ids <= PREFER_SLOTS * counts else blocks


def human(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"
