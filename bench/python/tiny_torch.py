"""Decode steps of a Qwen3-MoE model in PyTorch on one thread of a CPU, for bench/tiny.mjs.

usage: tiny_torch.py MODEL_FOLDER < JSON        {"batches": [[[token ids] …] …], "steps": n, "warmUp": n, "transformers": bool, "cpu": bool}
prints JSON: {"torch": …, "lean": [{"msPerStep": median, "ids": [[greedy tokens] …]} a batch], "eager": the same or null}

`lean` is written for speed: one matrix for queries, keys and values, one for an expert's gate and up projections, keys and values in place
in one tensor a layer, PyTorch's own attention, experts one by one over the tokens that chose them, no modules and no cache objects.
`eager` is transformers' Qwen3MoeForCausalLM as it comes (float32, eager attention, its dynamic cache).
`cpu`: processor time instead of the clock's. All sequences of a batch have the same length."""

import gzip
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load

torch.set_num_threads(1)
clock = time.perf_counter


def interleaved(planes: bytes) -> bytes:
    """models/tiny6/README.md"""
    odd, out = (len(planes) + 1) // 2, bytearray(len(planes))
    out[0::2], out[1::2] = planes[:odd], planes[odd:]
    return bytes(out)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    plain = folder / "model.safetensors"
    data = plain.read_bytes() if plain.exists() else interleaved(gzip.decompress((folder / "model.safetensors.planes.gz").read_bytes()))
    return {name: tensor.float() for name, tensor in load(data).items()}


class Lean:
    def __init__(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        self.c = c = json.loads((folder / "config.json").read_text())
        self.heads, self.kv_heads, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.embed = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.layers = []
        for index in range(c["num_hidden_layers"]):
            of = f"model.layers.{index}."
            attention = [weights[f"{of}self_attn.{name}_proj.weight"] for name in ("q", "k", "v")]
            experts = range(c["num_experts"])
            gate = [weights[f"{of}mlp.experts.{e}.gate_proj.weight"] for e in experts]
            up = [weights[f"{of}mlp.experts.{e}.up_proj.weight"] for e in experts]
            self.layers.append({
                "qkv": torch.cat(attention),
                "o": weights[f"{of}self_attn.o_proj.weight"],
                "qn": weights[f"{of}self_attn.q_norm.weight"],
                "kn": weights[f"{of}self_attn.k_norm.weight"],
                "n1": weights[f"{of}input_layernorm.weight"],
                "n2": weights[f"{of}post_attention_layernorm.weight"],
                "gate": weights[f"{of}mlp.gate.weight"],
                "gate_up": [torch.cat(pair) for pair in zip(gate, up, strict=True)],
                "down": [weights[f"{of}mlp.experts.{e}.down_proj.weight"] for e in experts],
            })  # fmt: skip
        frequencies = 1.0 / c["rope_theta"] ** (torch.arange(0, self.width, 2).float() / self.width)
        angles = torch.outer(torch.arange(c["max_position_embeddings"]).float(), frequencies)
        self.cos, self.sin = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()

    def allocate(self, batch: int, length: int) -> None:
        shape = (self.c["num_hidden_layers"], batch, self.kv_heads, length, self.width)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def turn(self, x: torch.Tensor, start: int, count: int) -> torch.Tensor:
        half = self.width // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos[start : start + count] + turned * self.sin[start : start + count]

    def step(self, ids: torch.Tensor, start: int) -> torch.Tensor:
        """ids: [batch, count], at positions from `start` on. Logits of the last one."""
        c, eps = self.c, self.c["rms_norm_eps"]
        batch, count = ids.shape
        x = self.embed[ids]
        for index, layer in enumerate(self.layers):
            qkv = F.linear(F.rms_norm(x, (c["hidden_size"],), layer["n1"], eps), layer["qkv"])
            qkv = qkv.view(batch, count, self.heads + 2 * self.kv_heads, self.width).transpose(1, 2)
            q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 1)
            q = self.turn(F.rms_norm(q, (self.width,), layer["qn"], eps), start, count)
            self.keys[index, :, :, start : start + count] = self.turn(F.rms_norm(k, (self.width,), layer["kn"], eps), start, count)
            self.values[index, :, :, start : start + count] = v
            keys, values = self.keys[index, :, :, : start + count], self.values[index, :, :, : start + count]
            attended = F.scaled_dot_product_attention(q, keys, values, is_causal=count > 1, enable_gqa=True)
            x = x + F.linear(attended.transpose(1, 2).reshape(batch, count, -1), layer["o"])
            x = x + self.experts(F.rms_norm(x, (c["hidden_size"],), layer["n2"], eps).view(batch * count, -1), layer).view_as(x)
        return F.linear(F.rms_norm(x[:, -1], (c["hidden_size"],), self.norm, eps), self.embed)

    def experts(self, x: torch.Tensor, layer: dict) -> torch.Tensor:
        c = self.c
        weights, chosen = F.linear(x, layer["gate"]).softmax(-1).topk(c["num_experts_per_tok"], -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        if x.shape[0] == 1:
            for rank, e in enumerate(chosen[0].tolist()):
                gate, up = F.linear(x, layer["gate_up"][e]).chunk(2, -1)
                out += weights[0, rank] * F.linear(F.silu(gate) * up, layer["down"][e])
            return out
        # Tokens in the order of their experts, once; each expert has its piece of the list.
        order = chosen.flatten().argsort(stable=True)
        tokens = order // c["num_experts_per_tok"]
        counts = torch.bincount(chosen.flatten(), minlength=c["num_experts"]).tolist()
        rows, factors = x[tokens], weights.flatten()[order].unsqueeze(-1)
        parts, at = [], 0
        for e, n in enumerate(counts):
            if n == 0:
                continue
            gate, up = F.linear(rows[at : at + n], layer["gate_up"][e]).chunk(2, -1)
            parts.append(F.linear(F.silu(gate) * up, layer["down"][e]))
            at += n
        return out.index_add_(0, tokens, torch.cat(parts) * factors)


def lean(model: Lean, prompts: list[list[int]], steps: int, warm_up: int) -> dict:
    ids = torch.tensor(prompts)
    length = ids.shape[1]
    model.allocate(len(prompts), length + warm_up + steps)
    last = model.step(ids, 0).argmax(-1, keepdim=True)
    made, times = [last], []
    for step in range(warm_up + steps):
        begin = clock()
        last = model.step(last, length + step).argmax(-1, keepdim=True)
        times.append(clock() - begin)
        made.append(last)
    return {"msPerStep": 1e3 * statistics.median(times[warm_up:]), "ids": torch.cat(made, 1).tolist()}


def eager_model(folder: Path, weights: dict[str, torch.Tensor]):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(folder))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    state = dict(weights)
    # Newer releases keep the experts of a layer in one tensor.
    for index in range(config.num_hidden_layers):
        of = f"model.layers.{index}.mlp.experts."
        if f"{of}gate_up_proj" in model.state_dict():
            names = range(config.num_experts)
            pair = [torch.cat([state.pop(f"{of}{e}.gate_proj.weight"), state.pop(f"{of}{e}.up_proj.weight")]) for e in names]
            state[f"{of}gate_up_proj"] = torch.stack(pair)
            state[f"{of}down_proj"] = torch.stack([state.pop(f"{of}{e}.down_proj.weight") for e in names])
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model.eval()


def eager(model, prompts: list[list[int]], steps: int, warm_up: int) -> dict:
    output = model(input_ids=torch.tensor(prompts), use_cache=True, logits_to_keep=1)
    last = output.logits[:, -1].argmax(-1, keepdim=True)
    made, times = [last], []
    for _ in range(warm_up + steps):
        begin = clock()
        output = model(input_ids=last, past_key_values=output.past_key_values, use_cache=True)
        last = output.logits[:, -1].argmax(-1, keepdim=True)
        times.append(clock() - begin)
        made.append(last)
    return {"msPerStep": 1e3 * statistics.median(times[warm_up:]), "ids": torch.cat(made, 1).tolist()}


def main() -> None:
    global clock
    folder = Path(sys.argv[1])
    asked = json.load(sys.stdin)
    if asked["cpu"]:
        clock = time.process_time
    weights = weights_of(folder)
    with torch.inference_mode():
        model = Lean(folder, weights)
        results = [lean(model, prompts, asked["steps"], asked["warmUp"]) for prompts in asked["batches"]]
        other = None
        if asked["transformers"]:
            whole = eager_model(folder, weights)
            other = [eager(whole, prompts, asked["steps"], asked["warmUp"]) for prompts in asked["batches"]]
    print(json.dumps({"torch": torch.__version__, "lean": results, "eager": other}))


if __name__ == "__main__":
    main()
