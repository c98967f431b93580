"""Formats the results of capture.py as tables for docs/evidence/vllm-capture.md."""

from __future__ import annotations

from typing import Any


def markdown(about: dict[str, Any]) -> str:
    rows = about["rows"]
    lines = [f"{about['device']}, torch {about['torch']}, Python {about['python']}, medians of {about['repeats']}, milliseconds.", ""]

    def table(head: list[str], body: list[list[str]]) -> None:
        if body:
            lines.extend(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in body), ""])

    body = [[row["call"], ms(row, "device_ms"), ms(row, "host_ms")] for row in rows if row["what"] == "basic"]
    table(["one call", "device", "host"], body)
    shapes = {key_of(row): None for row in rows if row["what"] == "sums"}
    body = []
    for key in shapes:
        parts = {row["what"] + row.get("mode", ""): row for row in rows if key_of(row) in (key, key[:-1])}
        modes = [mode for mode in ("eager", "graph") if f"record{mode}" in parts]
        body += [[*named(key), mode, *cells(parts, mode)] for mode in modes]
    head = ["layers × experts", "recent", "how", "tokens", "prompts end", "hooks", "record", "sums", "read", "encode"]
    table([*head, "total device", "total host"], body)
    body = [
        [f"{row['layers']} × {row['experts']}", row["how"], str(row["rows"]), ms(row, "device_ms"), ms(row, "host_ms")]
        for row in rows
        if row["what"] == "distinct"
    ]
    table(["distinct experts of a decode step", "how", "rows", "device", "host"], body)
    return "\n".join(lines)


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Of a row with sums; a row of a step has no number of prompts and matches all of them."""
    key = tuple(row.get(name) for name in ("layers", "experts", "half_life", "how", "tokens"))
    return (*key, row["ends"]) if "ends" in row else key


def named(key: tuple[Any, ...]) -> list[str]:
    layers, experts, half_life, how, tokens, ends = key
    return [f"{layers} × {experts}", "yes" if half_life else "no", how, f"{tokens:,}", str(ends)]


def cells(parts: dict[str, Any], mode: str) -> list[str]:
    """Device (host)."""
    launched = [parts[f"record{mode}"], parts["sums"]]
    waited = [parts["read"], parts["encode"]]
    out = [f"{ms(row, 'device_ms')} ({ms(row, 'host_ms')})" for row in launched] + [f"({ms(row, 'host_ms')})" for row in waited]
    device = sum(row["device_ms"] for row in launched)
    host = sum(row["host_ms"] for row in launched + waited)
    return [*out, f"{device:.3f}", f"{host:.3f}"]


def ms(row: dict[str, Any], which: str) -> str:
    return f"{row[which]:.3f}"
