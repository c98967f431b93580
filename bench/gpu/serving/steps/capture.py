"""Are the plugin's counts right on this device? Beside every server with the plugin stands one with vLLM's own
capture (--enable-return-routed-experts) and the same flags: the same kernels on the same prompts, captured by
other code. A second server of the reference shows how far the engine differs from itself. In the set `twin` there is
no other server: the same forward pass is captured twice (eldr_inside/twin.py).

vLLM's CPU build has no capture of its own, so a dry run compares with transformers instead."""

from __future__ import annotations

import argparse
import base64
import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lab import prompts
from lab.engines import Engine, eldr
from lab.legs import Client
from lab.models import config_of, model_folder
from lab.say import say
from lab.servers import Server

from . import engines
from .common import Context, StepKind

DECODE_STEPS = 32
ROUNDS = ("one by one", "at once", "one by one again")
# In place of a reference: the second capture in the server itself.
TWIN = "twin"
Array = Any


@dataclass(frozen=True, slots=True)
class Case:
    """reference: name of the server to compare with. A reference has none, or the one it should equal itself."""

    engine: Engine
    what: str
    reference: str = ""


def cases(context: Context) -> dict[str, Case]:
    common = Engine("", model="tiny6", cache="300M", share=0.04)
    small = replace(common, max_step_tokens=64, max_requests=8, blocks=80, max_len=1024)
    plugin = eldr("kv_both", half_life=64)

    def case(name: str, like: Engine, what: str, transfer: dict[str, Any] | None, reference: str = "", **changes: Any) -> tuple[str, Case]:
        return name, Case(replace(like, name=name, transfer=transfer, returns_experts=transfer is None, **changes), what, reference)

    def twin(name: str, what: str, transfer: dict[str, Any], **changes: Any) -> tuple[str, Case]:
        inside = {"twin": engines.twin_file(context, name)}
        return case(name, common, what, transfer, TWIN, inside=inside, prefix_caching=False, **changes)

    return dict(
        [
            case("graphs", common, "compiled, CUDA graphs", plugin, "own"),
            case("own", common, "vLLM's capture", None),
            case("eager", common, "eager", plugin, "own-eager", is_eager=True),
            case("own-eager", common, "vLLM's capture, eager", None, is_eager=True),
            case("small", small, "chunks of 64 tokens, pool of 80 blocks", plugin, "own-small"),
            case("own-small", small, "vLLM's capture, chunks of 64 tokens, pool of 80 blocks", None),
            case("blocks", common, "blocks of 64", plugin, "own-64", block_size=64),
            case("own-64", common, "vLLM's capture, blocks of 64", None, block_size=64),
            case("own-64-again", common, "vLLM's capture, blocks of 64, a second server", None, "own-64", block_size=64),
            case("v2", common, "runner V2 beside V1", plugin, "own", runner="V2"),
            twin("twin-graphs", "compiled, CUDA graphs", plugin),
            twin("twin-blocks", "blocks of 64", plugin, block_size=64),
            twin("twin-v2", "runner V2", plugin, runner="V2"),
        ]
    )


SETS = {
    "core": ("graphs", "own", "eager", "own-eager"),
    "blocks": ("blocks", "own-64", "own-64-again"),
    "more": ("small", "own-small", "v2", "own"),
    "twin": ("twin-graphs", "twin-blocks", "twin-v2"),
}


def chosen_cases(context: Context) -> dict[str, Case]:
    known = cases(context)
    if context.is_dry:
        return {"alone": Case(engines.alone(context), "eager", "transformers")}  # it runs already
    return {name: known[name] for name in SETS[context.options.set]}


def servers_of(context: Context) -> list[Engine]:
    return [case.engine for case in chosen_cases(context).values()]


def run(context: Context) -> None:
    chosen = chosen_cases(context)
    asked = prompts.capture_prompts(model_folder(context.lab.stage, "tiny6"))
    if context.is_dry:
        asked = asked[:4]
    result = context.result(name_of(context.options), "capture-exact", "captureExact", {"prompts": len(asked), "cases": list(chosen)})
    if result.already_done():
        return
    servers = context.lab.ready(servers_of(context), must=False)
    context.describe(result, next(iter(chosen.values())).engine, next(iter(servers.values()), None))
    context.start_next()
    answers: dict[str, dict[str, list[Answer]]] = {}
    for name, server in servers.items():
        answers[name] = asked_all(server, asked, chosen[name].engine)
        say(name, "asked")
    shape = Shape(config_of(context.lab.stage, "tiny6"))
    forward = experts_of_transformers(context, asked) if context.is_dry else []
    for name, case in chosen.items():
        if name in servers and "twin" in case.engine.inside:
            key = {"case": f"{name} twice", "name": case.what, "against": "a second capture in the same forward pass"}
            row = result.item("cases", key, partial(captured_twice, context, name))
            say(name, {key: row[key] for key in ("promptChoices", "promptDiffering")})
        if not case.reference or (case.reference == TWIN and name in servers):
            continue
        if name not in answers or (case.reference not in ("transformers", TWIN) and case.reference not in answers):
            reason = next((one for one in (name, case.reference) if one not in servers), "")
            result.item("failed", {"case": name}, partial(dict, name=case.what, note=f"{reason} did not start"))
            continue
        against = "transformers, float32" if case.reference == "transformers" else chosen[case.reference].what
        for turn in ROUNDS:
            reference = forward or answers[case.reference][turn]
            row = result.item(
                "cases",
                {"case": name, "round": turn, "name": f"{case.what}, {turn}", "runner": case.engine.runner, "against": against},
                partial(compared, answers[name][turn], reference, shape),
            )
            say(name, turn, {key: row[key] for key in ("promptDiffering", "decodeDiffering", "differingByLayer", "covered")})
    result.finish()


@dataclass(frozen=True, slots=True)
class Shape:
    config: dict[str, Any]

    @property
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def experts(self) -> int:
        return int(self.config["num_experts"])

    @property
    def top_k(self) -> int:
        return int(self.config["num_experts_per_tok"])


@dataclass(frozen=True, slots=True)
class Answer:
    """sent: of the plugin. rows: experts of vLLM's own capture, [tokens, layers, top_k]."""

    prompt: list[int]
    tokens: list[int]
    sent: dict[str, Any] | None
    rows: Array | None


def asked_all(server: Server, asked: list[list[int]], engine: Engine) -> dict[str, list[Answer]]:
    def one(prompt: list[int]) -> Answer:
        return ask(Client(server), prompt, engine)

    out = {"one by one": [one(prompt) for prompt in asked]}
    with ThreadPoolExecutor(len(asked)) as pool:
        out["at once"] = list(pool.map(one, asked))
    out["one by one again"] = [one(prompt) for prompt in asked]
    return out


def ask(client: Client, prompt: list[int], engine: Engine) -> Answer:
    """All servers generate the same number of tokens, so that they run the same steps."""
    more: dict[str, Any] = {"return_token_ids": True}
    if engine.transfer is not None:
        more["kv_transfer_params"] = {"eldr": {"record": "decode"}}
    _, answer = client.complete(prompt, DECODE_STEPS + 1, **more)
    choice = answer["choices"][0]
    rows = choice.get("routed_experts")
    return Answer(
        prompt,
        list(choice["token_ids"]),
        (answer.get("kv_transfer_params") or {}).get("eldr"),
        None if rows is None else np.load(io.BytesIO(base64.b64decode(rows))).astype(int),
    )


def compared(answers: list[Answer], references: list[Answer], shape: Shape) -> dict[str, Any]:
    """Choices that differ: of the prompts' counts, by layer, and of the decode ids where the texts agree."""
    by_layer = np.zeros(shape.layers, int)
    prompt_choices = covered = decode_choices = decode_differing = same_texts = without = 0
    for answer, reference in zip(answers, references, strict=True):
        if answer.sent is not None and "counts" not in answer.sent:
            without += 1
            continue
        mine = counts_of(answer, shape)
        theirs = counts_of(reference, shape)
        by_layer += np.abs(mine - theirs).sum(axis=1) // 2
        prompt_choices += int(mine.sum())
        covered += answer.sent is None or answer.sent["covered"] == len(answer.prompt)
        ids, other = decode_ids(answer, shape), decode_ids(reference, shape)
        same = answer.tokens == reference.tokens
        same_texts += same
        if ids is not None and other is not None and same:
            steps = min(len(ids), len(other))
            decode_choices += steps * shape.layers * shape.top_k
            decode_differing += differing(ids[:steps], other[:steps])
    return {
        "prompts": len(answers),
        "promptChoices": prompt_choices,
        "promptDiffering": int(by_layer.sum()),
        "differingByLayer": by_layer.tolist(),
        "covered": covered,
        "withoutCounts": without,
        "sameTexts": same_texts,
        "decodeChoices": decode_choices,
        "decodeDiffering": decode_differing,
    }


def captured_twice(context: Context, name: str) -> dict[str, Any]:
    found = json.loads(Path(engines.twin_file(context, name)).read_text())
    return {
        "prompts": found["prompts"],
        "promptChoices": found["choices"],
        "promptDiffering": found["differing"],
        "differingByLayer": found["byLayer"],
    }


def counts_of(answer: Answer, shape: Shape) -> Array:
    """[layers, experts]"""
    if answer.sent is not None:
        flat = np.frombuffer(base64.b64decode(answer.sent["counts"]), "<u2").astype(int)
        return flat.reshape(shape.layers, shape.experts)
    assert answer.rows is not None
    rows = answer.rows[: len(answer.prompt)]
    return np.stack([np.bincount(rows[:, layer].ravel(), minlength=shape.experts) for layer in range(shape.layers)])


def decode_ids(answer: Answer, shape: Shape) -> Array | None:
    """[steps, layers, top_k], sorted"""
    if answer.rows is not None:
        return np.sort(answer.rows[len(answer.prompt) :], axis=2)
    if answer.sent is None or "decode" not in answer.sent:
        return None
    flat = np.frombuffer(base64.b64decode(answer.sent["decode"]["ids"]), np.uint8).astype(int)
    return np.sort(flat.reshape(-1, shape.layers, shape.top_k), axis=2)


def differing(one: Array, other: Array) -> int:
    """Experts of the one that the other does not have; [steps, layers, top_k]."""
    missing = (one[..., :, None] != other[..., None, :]).all(axis=-1)
    return int(missing.sum())


def experts_of_transformers(context: Context, asked: list[list[int]]) -> list[Answer]:
    import torch
    from transformers import AutoModelForCausalLM

    folder = model_folder(context.lab.stage, "tiny6")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    out = []
    for prompt in asked:
        with torch.no_grad():
            logits = model(torch.tensor([prompt]), output_router_logits=True).router_logits
        top_k = model.config.num_experts_per_tok
        rows = np.stack([layer.reshape(len(prompt), -1).topk(top_k).indices.numpy() for layer in logits], axis=1)
        out.append(Answer(prompt, [], None, rows))
    return out


def name_of(options: argparse.Namespace) -> str:
    return f"capture-{options.set}"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", choices=tuple(SETS), default="core", help="which servers to compare")


def kinds() -> Sequence[StepKind]:
    more = tuple(f"--set {name}" for name in SETS if name != "core")
    return [StepKind("capture", "counts against vLLM's own capture", lambda o: 125, run, servers_of, name_of, add_options, more)]
