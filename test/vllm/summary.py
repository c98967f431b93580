"""Figures of a test, shown at the end of the run."""

from __future__ import annotations

from collections.abc import Sequence

TABLES: dict[str, list[str]] = {}


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    TABLES[title] = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
