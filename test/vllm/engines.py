"""vLLM engines without a server, several in one process: their requests and responses."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from servers import MODEL, READY_SECONDS, inherited

Tokens = tuple[int, ...]
# Small, so that prompts are computed in chunks and blocks are evicted.
SMALL: dict[str, Any] = {"block_size": 32, "num_gpu_blocks_override": 64, "max_num_batched_tokens": 64, "max_num_seqs": 8}


@dataclass(frozen=True)
class Run:
    """batches: requests sent at once, one batch after the other. changes: what is changed in vLLM or broken in the plugin, and after how
    many calls (engine_main.py)."""

    batches: Sequence[Sequence[Tokens]]
    max_tokens: int = 9
    model: Path = MODEL
    settings: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "model": str(self.model),
            "settings": self.settings,
            "changes": self.changes,
            "batches": [[{"prompt": list(prompt), "max_tokens": self.max_tokens} for prompt in batch] for batch in self.batches],
            "arguments": {
                "dtype": "float32",
                "enforce_eager": True,
                "max_model_len": 1024,
                "enable_prefix_caching": True,
                "skip_tokenizer_init": True,
                "disable_log_stats": False,
                **self.arguments,
            },
        }


@dataclass(frozen=True)
class Answer:
    prompt: Tokens
    tokens: Tokens
    cached: int
    sent: Any

    @property
    def counts(self) -> Any:
        return _cells(self.sent["counts"], self.sent["layers"])

    @property
    def recent(self) -> Any:
        return _cells(self.sent["recent"], self.sent["layers"])

    @property
    def decode(self) -> Any:
        """[steps, layers, top_k]"""
        decode = self.sent["decode"]
        kind = {"u8": "<u1", "u16": "<u2"}[decode["dtype"]]
        ids = np.frombuffer(base64.b64decode(decode["ids"]), kind).astype(int)
        return ids.reshape(decode["steps"], self.sent["layers"], self.sent["top_k"])


@dataclass(frozen=True)
class Result:
    batches: list[list[Answer]]
    seen: dict[str, Any]

    @property
    def answers(self) -> list[Answer]:
        return [answer for batch in self.batches for answer in batch]

    @property
    def log(self) -> str:
        return "\n".join(self.seen["log"])


def run_engines(folder: Path, name: str, runs: dict[str, Run], **variables: str) -> dict[str, Result]:
    asked, answered, log = (folder / f"{name}.{end}" for end in ("runs.json", "results.json", "log"))
    asked.write_text(json.dumps([run.as_json() for run in runs.values()]))
    command = [sys.executable, str(Path(__file__).with_name("engine_main.py")), str(asked), str(answered)]
    with log.open("wb") as out:
        ended = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=inherited() | variables,
            timeout=READY_SECONDS,
            check=False,
        )
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    assert ended.returncode == 0, f"{name} ended with {ended.returncode}\n{tail}"
    results: dict[str, Result] = {}
    for (key, run), seen in zip(runs.items(), json.loads(answered.read_text()), strict=True):
        assert "error" not in seen, f"{key}: {seen['error']}\n{tail}"
        batches = [
            [
                Answer(prompt, tuple(answer["tokens"]), answer["cached"] or 0, (answer["sent"] or {}).get("eldr"))
                for prompt, answer in zip(batch, answers, strict=True)
            ]
            for batch, answers in zip(run.batches, seen["answers"], strict=True)
        ]
        results[key] = Result(batches, seen)
    return results


def check(answer: Answer, experts: Callable[[Tokens], Any], total: int, half_life: float | None = None) -> None:
    """experts: of each of these tokens, [tokens, layers, top_k], computed without vLLM; total: experts per layer."""
    prompt = answer.prompt
    ids = experts(prompt + answer.tokens[:-1])
    assert answer.sent is not None
    assert "off" not in answer.sent, answer.sent
    assert (answer.sent["tokens"], answer.sent["covered"]) == (len(prompt), len(prompt))
    assert answer.counts.tolist() == summed(ids[: len(prompt)], total, None).astype(int).tolist()
    assert answer.sent.get("half_life") == half_life
    if half_life is not None:
        assert np.abs(answer.recent - summed(ids[: len(prompt)], total, half_life) * 256).max() <= 0.5 + 1e-5
    if "decode" in answer.sent:
        assert len(answer.decode) == len(answer.tokens) - 1
        assert np.sort(answer.decode, axis=2).tolist() == np.sort(ids[len(prompt) :], axis=2).tolist()


def summed(ids: Any, total: int, half_life: float | None) -> Any:
    """[layers, experts]; with a half-life, recent tokens weigh more."""
    out = np.zeros((ids.shape[1], total))
    for position, rows in enumerate(ids):
        weight = 1.0 if half_life is None else 2.0 ** ((position + 1 - len(ids)) / half_life)
        for layer, row in enumerate(rows):
            out[layer, row] += weight
    return out


def _cells(text: str, layers: int) -> Any:
    return np.frombuffer(base64.b64decode(text), "<u2").astype(int).reshape(layers, -1)
