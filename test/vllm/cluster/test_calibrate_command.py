"""`eldr calibrate` against a real server: its traces equal an independent forward pass, and can be fitted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from oracle import counts_of, experts_of, prompts
from safetensors.numpy import load_file
from servers import ELDR, Server

from cluster.cluster import Cluster

STEPS = 16
Prompt = tuple[int, ...]


def command(*args: str) -> Any:
    done = subprocess.run([*ELDR, *args, "--json", "--quiet"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def text_of(server: Server, prompt: Prompt) -> Prompt:
    body = {"model": "tiny", "prompt": list(prompt), "max_tokens": STEPS + 1, "temperature": 0, "ignore_eos": True}
    return tuple(server.post("/v1/completions", body | {"return_token_ids": True})["choices"][0]["token_ids"])


def test_traces_equal_a_forward_pass(cluster: Cluster, folder: Path) -> None:
    server = cluster.alone
    asked = list(dict.fromkeys(prompts()))
    domains = ["law" if len(prompt) % 2 else "code" for prompt in asked]
    lines, out, held = folder / "p.jsonl", folder / "t.calibration.safetensors", folder / "t.evaluation.safetensors"
    pairs = zip(asked, domains, strict=True)
    lines.write_text("".join(json.dumps({"prompt": prompt, "domain": domain}) + "\n" for prompt, domain in pairs))
    where = ("--url", server.url, "--prompts", str(lines), "--out", str(out), "--timeout", "300")
    result = command("calibrate", *where, "--holdout", "0.5", "--steps", str(STEPS), "--concurrency", "4")
    texts = {prompt: text_of(server, prompt) for prompt in asked}
    assert result["prompts"] == len(asked) == result["captured"]["calibration"] + result["captured"]["evaluation"]
    assert (result["layers"], result["experts"], result["topK"], result["halfLife"]) == (6, 64, 8, 64)

    by_counts = {counts_of(prompt).astype(int).tobytes(): prompt for prompt in asked}
    seen: set[Prompt] = set()
    for path in (out, held):
        trace = load_file(path)
        for row, counts in enumerate(trace["prefill_counts"]):
            prompt = by_counts[counts.astype(int).tobytes()]
            seen.add(prompt)
            assert (trace["prompt_tokens"][row], trace["decode_steps"][row]) == (len(prompt), STEPS)
            assert np.abs(trace["prefill_recent"][row] - counts_of(prompt, 64)).max() < 1 / 256
            steps = experts_of(prompt + texts[prompt][:-1])[len(prompt) :]
            fired = np.stack([np.bincount(steps[:, layer].ravel(), minlength=64) for layer in range(6)])
            assert trace["decode_counts"][row].tolist() == fired.tolist()
            if path == held:
                assert np.sort(trace["decode_expert_ids"][row], axis=2).tolist() == np.sort(steps, axis=2).tolist()
    assert seen == set(asked)
    assert command("fit", str(out), "--workers", "2", "--out", str(folder / "t.artifact.safetensors"))["workers"] == 2
