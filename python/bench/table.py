"""Formats the results of capture.py as the table in docs/evidence/vllm-capture.md, next to the paper's."""

from __future__ import annotations

from typing import Any

# The paper's Table 1, for a prefill step of Qwen3-30B-A3B: milliseconds, and the share of GPU memory.
PAPER = {"record": 0.02, "reduce": 0.48, "stage": 0.21, "memory": 0.0024}
FORMS = [("slots", None, "ids per slot"), ("slots", 64.0, "ids per slot, recent counts"), ("blocks", None, "counts per block"),
         ("blocks", 64.0, "counts per block, recent counts")]  # fmt: skip


def markdown(about: dict[str, Any]) -> str:
    rows = about["rows"]

    def ms(what: str, form: Any, tokens: int, which: str = "device_ms", **more: Any) -> float:
        wanted = {"what": what, "form": form[0], "half_life": form[1], "tokens": tokens, **more}
        (found,) = (row for row in rows if all(row.get(key) == value for key, value in wanted.items()))
        return float(found[which])

    def whole(form: Any, tokens: int, ends: int, how: str, which: str = "device_ms") -> float:
        parts = ms("reset", form, tokens, which), ms("record", form, tokens, which, how=how)
        return sum(parts) + ms("sum and copy", form, tokens, which, how="kernel", ends=ends)

    lines = [f"{about['device']}, torch {about['torch']}, medians of {about['repeats']}. Milliseconds on the device (on the host).", ""]

    def table(head: list[str], body: list[list[str]]) -> None:
        lines.extend(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in body), ""])

    def both(*of: Any, **more: Any) -> str:
        return f"{ms(*of, **more):.3f} ({ms(*of, 'host_ms', **more):.2f})"

    table(
        ["a step of 2,048 tokens, one prompt ends", "ours: device (host)", "paper, Table 1"],
        [
            ["hooks on the routers", "in the next row", f"record(): {PAPER['record']}, host"],
            [
                "scatter the experts into the store, eager",
                both("record", FORMS[0], 2048, how="eager"),
                f"reduce(): {PAPER['reduce']}, GPU",
            ],
            ["the same in a CUDA graph", both("record", FORMS[0], 2048, how="graph"), "–"],
            ["clear reused blocks", both("reset", FORMS[0], 2048), "–"],
            [
                "sum over the blocks of the prompt, copy to the host",
                both("sum and copy", FORMS[0], 2048, how="kernel", ends=1),
                f"stage_sigs(): {PAPER['stage']}, GPU",
            ],
            [
                "**total**",
                f"**{whole(FORMS[0], 2048, 1, 'eager'):.3f}** ({whole(FORMS[0], 2048, 1, 'eager', 'host_ms'):.2f})",
                "0.71",
            ],
        ],
    )
    body = []
    for form in FORMS:
        (memory,) = (row for row in rows if row["what"] == "memory" and (row["form"], row["half_life"]) == form[:2])
        for tokens in (512, 2048, 8192):
            cells = [
                f"{whole(form, tokens, ends, 'eager'):.3f} ({whole(form, tokens, ends, 'eager', 'host_ms'):.2f})" for ends in (1, 4, 16)
            ]
            body.append([form[2], f"{tokens:,}", *cells, f"{memory['share_of_kv']:.2%}"])
    table(["whole capture, eager", "tokens", "1 ends", "4 end", "16 end", "of the KV cache"], body)
    body = [
        [form[2], f"{tokens:,}", str(ends), *(both("sum and copy", form, tokens, how=how, ends=ends) for how in ("kernel", "plain"))]
        for form in FORMS
        for tokens in (512, 2048, 8192)
        for ends in (1, 4, 16)
    ]
    table(["sum and copy", "tokens of each prompt", "prompts", "our kernel", "plain torch"], body)
    table(["distinct experts of a decode step, batch 256", ""], [["ids per slot", both("distinct", FORMS[0], 256)]])
    return "\n".join(lines)
