"""Measures the time of a decode step of a mixture-of-experts model on this GPU: f(batch, active experts per layer, context).

usage: step_profile.py --out DIR [--shapes qwen3-30b-a3b,…] [--budget-s 360] [--quick]
       step_profile.py --out DIR --steps FILE [--fit DIR/fitted.json] [--shapes qwen3-30b-a3b]
       step_profile.py --out DIR --refit                       fit again from DIR/raw.json
       step_profile.py --out DIR --device cpu --tiny           a dry run of every path, without a GPU

Measured: whole steps in bf16 as CUDA graphs (embedding; per layer norms, QKV, rotary, paged attention, output projection, gate,
permutation, two grouped GEMMs, weighted sum, and Gemma's dense MLP; final norm, head, argmax), with the experts of every token given so
that exactly A are active, while the gate's own work is still done. Some cells have uneven experts, as a gate chooses them. Also one
prefill, the MoE part alone (the paper's Fig. 2), attention alone, and copies.
Not measured: a scheduler, sampling, communication between GPUs, quantised weights, chunked prefill beside decode, the host's work
between steps. Weights are random; n sets of expert weights take turns (n is in the output). Kernels are torch's and ours, not an
engine's: an engine with tuned kernels may be faster, and the form of the cost is what carries over.

DIR gets raw.json (all timings with provenance, rewritten as the run goes), fitted.json (the profile's numbers) and steps-SHAPE.json."""

import argparse
import gc
import importlib
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import fit
import steps as recorded
from check import LIMIT, check
from grid import SPREADS, Grid
from measure import Clock, copy_bandwidth, provenance, smi, summary
from model import Inputs, Model
from report import report, report_steps
from shapes import SHAPES, Shape, tiny


class Run:
    """One run over several shapes: the clock, the deadline and the files."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.device = torch.device(args.device)
        self.clock = Clock(self.device, args.reps)
        self.grid = Grid(args.tiny, args.quick)
        self.out = Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        self.end = self.started + args.budget_s
        self.ops = importlib.import_module("ops_triton" if self.device.type == "cuda" else "ops_torch")
        self.raw: dict[str, Any] = {"what": (__doc__ or "").splitlines()[0], "provenance": provenance(self.device), "shapes": {}}
        self.fitted: dict[str, Any] = {"provenance": self.raw["provenance"], "shapes": {}}

    def shapes(self) -> list[Shape]:
        chosen = [SHAPES[n] for n in self.args.shapes.split(",")]
        return [tiny(s) for s in chosen] if self.args.tiny else chosen

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)

    def save(self, name: str, data: dict[str, Any]) -> None:
        part = self.out / f"{name}.part"
        part.write_text(json.dumps(data, indent=1))
        part.replace(self.out / name)

    def check_kernels(self) -> None:
        if self.device.type != "cuda":
            return
        found = {s.name: check(tiny(s), self.ops, self.device) for s in self.shapes()}
        self.raw["kernel_check"] = {"what": "largest relative distance from plain torch, tiny shapes", "limit": LIMIT, "found": found}
        worst = max((v, f"{s}: {op}") for s, ops in found.items() for op, v in ops.items())
        self.say(f"kernels against plain torch: worst {worst[0]:.1e} ({worst[1]})")
        if not worst[0] <= LIMIT:
            self.save("raw.json", self.raw)
            raise SystemExit(f"the kernels are wrong: {found}")

    def model(self, shape: Shape, batch: int, context: int, tokens: int) -> Model:
        m = Model(shape, self.ops, self.device, batch, context, self.args.expert_gib, self.args.kv_gib, tokens)
        self.say(
            f"{shape.name}: {shape.layers} layers, {m.expert_sets} sets of expert weights of {shape.expert_bytes() / 2**20:.0f} MiB "
            f"in turn, {m.kv_sets} KV pools, {m.bytes() / 2**30:.1f} GiB in all"
        )
        return m


class Timer:
    """Captured work of one shape, by batch: experts and contexts are inputs, so one graph serves all cells of a batch."""

    def __init__(self, run: Run, model: Model):
        self.run, self.model = run, model
        self.graphs: dict[int, tuple[Inputs, Callable[[], Any]]] = {}

    def decode(self, batch: int) -> tuple[Inputs, Callable[[], Any]]:
        if batch not in self.graphs:
            x = self.model.decode_inputs(batch)
            self.model.set_contexts(x, [self.model.pages_per_request * 16] * batch)
            self.model.set_active(x, self.model.shape.top_k)
            self.graphs[batch] = (x, self.run.clock.capture(lambda: self.model.step(x)))
        return self.graphs[batch]

    def cell(self, batch: int, active: int, context: int) -> dict[str, Any]:
        x, replay = self.decode(batch)
        self.model.set_contexts(x, [context] * batch)
        self.model.set_active(x, active)
        times = self.run.clock.times(replay)
        kv = fit.kv_mib(self.model.shape, [context] * batch)
        return {
            "batch": batch,
            "active": active,
            "context": context,
            "kv_mib": round(kv, 3),
            **summary(times),
            "all": [round(t, 1) for t in times],
        }

    def drawn(self, batch: int, context: int, spread: float) -> dict[str, Any]:
        """A cell with uneven experts, as chosen by real gates."""
        x, replay = self.decode(batch)
        self.model.set_contexts(x, [context] * batch)
        experts = self.model.draw_experts(batch, spread)
        self.model.set_experts(x, experts)
        active = recorded.active_of(experts)
        kv = fit.kv_mib(self.model.shape, [context] * batch)
        return {
            "batch": batch,
            "active": active,
            "context": context,
            "spread": spread,
            "kv_mib": round(kv, 3),
            **summary(self.run.clock.times(replay)),
        }


def profile(run: Run, shape: Shape, seconds: float) -> None:
    grid, clock = run.grid, run.clock
    until = time.monotonic() + seconds
    model = run.model(shape, max(grid.batches), max(grid.contexts), max(grid.tokens))
    timer = Timer(run, model)
    record: dict[str, Any] = {
        "shape": shape.describe(),
        "expert_sets": model.expert_sets,
        "expert_set_bytes": shape.expert_bytes(),
        "kv_sets": model.kv_sets,
        "bytes_on_device": model.bytes(),
    }
    run.raw["shapes"][shape.name] = record

    bare = []
    for b in sorted({1, grid.fig2_batch, max(grid.batches)}):
        x = model.decode_inputs(b)
        bare.append({"batch": b, **summary(clock.times(clock.capture(partial(model.step, x, layers=0))))})
    record["no_layers"] = bare

    record["decode"], skipped = [], 0
    tiers = grid.cells(shape)

    def tier(cells: list[tuple[int, int, int]], must: bool = False) -> None:
        nonlocal skipped
        for cell in sorted(cells):
            if time.monotonic() > until and not must:
                skipped += 1
                continue
            record["decode"].append(timer.cell(*cell))
        record["cells_skipped_for_time"] = skipped
        run.save("raw.json", run.raw)
        run.say(f"{shape.name}: {len(record['decode'])} cells" + (f", {skipped} skipped" if skipped else ""))

    tier(tiers[0], must=True)
    parts(run, model, record)
    record["drawn"] = [timer.drawn(b, c, spread) for b in grid.batches for c in grid.contexts[:2] for spread in SPREADS]
    for cells in tiers[1:]:
        tier(cells)
    again = next((c for c in record["decode"] if c["batch"] == grid.fig2_batch), record["decode"][-1])
    second = timer.cell(again["batch"], again["active"], again["context"])
    record["repeat"] = {"first_us": again["us"], "second_us": second["us"], "change": second["us"] / again["us"] - 1}
    record["nvidia_smi_after"] = smi("clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active")

    run.save("raw.json", run.raw)
    fit_shape(run, shape)


def fit_shape(run: Run, shape: Shape) -> None:
    """Fits one shape: from its part of raw.json to its part of fitted.json."""
    record = run.raw["shapes"][shape.name]
    cells = [fit.Cell(c["batch"], (c["active"],), c["kv_mib"], c["us"]) for c in record["decode"]]
    cells += [fit.Cell(c["batch"], tuple(c["active"]), c["kv_mib"], c["us"], uneven=True) for c in record["drawn"]]
    done: dict[str, Any] = {"model": shape.model, "notes": list(shape.notes)}
    done["decode"] = fit.fit_decode(shape, cells, record["no_layers"][0]["us"])
    done["prefill"] = fit.fit_prefill([p["tokens"] for p in record["prefill"]], [p["us"] for p in record["prefill"]])
    done["profile"] = fit.as_profile(shape, done["decode"], done["prefill"])
    done["fig2"] = record["fig2"]
    run.fitted["shapes"][shape.name] = done
    run.save("fitted.json", run.fitted)


def parts(run: Run, model: Model, record: dict[str, Any]) -> None:
    """Timings besides whole steps: the MoE part (Fig. 2), attention, prefill."""
    shape, grid, clock = model.shape, run.grid, run.clock
    x = model.decode_inputs(grid.fig2_batch)
    h = torch.randn(x.tokens, shape.hidden, device=run.device).to(model.dtype)
    model.set_active(x, shape.top_k)
    replay = clock.capture(lambda: model.moe_layers(x, h))
    rows = []
    for a in grid.actives(shape, x.tokens):
        model.set_active(x, a)
        rows.append({"active": a, "us_per_layer": round(summary(clock.times(replay))["us"] / shape.layers, 2)})
    low = next((r for r in rows[:-1] if r["active"] == 16), rows[0])
    record["fig2"] = {
        "what": "MoE layer (gate, permutation, experts, weighted sum), microseconds",
        "batch": x.tokens,
        "rows": rows,
        "ratio": round(rows[-1]["us_per_layer"] / low["us_per_layer"], 2),
        "ratio_of": [low["active"], rows[-1]["active"]],
    }

    q = {(a.heads, a.head_dim): torch.randn(x.tokens, a.heads, a.head_dim, device=run.device).to(model.dtype) for a in shape.pattern}
    replay = clock.capture(lambda: model.attention_layers(x, q))
    record["attention"] = []
    for c in grid.contexts:
        model.set_contexts(x, [c] * x.tokens)
        us = summary(clock.times(replay))["us"]
        read = shape.kv_bytes_read([c] * x.tokens)
        record["attention"].append(
            {"batch": x.tokens, "context": c, "us_all_layers": us, "kv_bytes": read, "gb_s": round(read / us / 1e3, 1)}
        )

    record["prefill"] = []
    for t in grid.tokens:
        p = model.prefill_inputs(t)
        model.set_active(p, min(shape.experts, t * shape.top_k))
        record["prefill"].append({"tokens": t, **summary(clock.times(clock.capture(partial(model.step, p, prefill=True))))})


def free(run: Run) -> None:
    gc.collect()
    if run.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def profiles(run: Run) -> None:
    run.check_kernels()
    run.raw["copy"] = copy_bandwidth(run.clock, 1 << (20 if run.args.tiny else 32))
    run.fitted["copy"] = run.raw["copy"]
    run.save("raw.json", run.raw)
    free(run)
    todo = run.shapes()
    while todo:
        shape = todo.pop(0)
        weight = [s.layers * (s.expert_bytes() + 5e8) for s in (shape, *todo)]
        try:
            profile(run, shape, (run.end - time.monotonic()) * weight[0] / sum(weight))
        except (RuntimeError, ValueError) as problem:  # one shape's failure must not cost the others
            run.raw["shapes"].setdefault(shape.name, {})["failed"] = repr(problem)[:2000]
            run.save("raw.json", run.raw)
            run.say(f"{shape.name} failed: {problem!r}"[:2000])
        free(run)
    report(run.raw, run.fitted["shapes"])


def refit(run: Run) -> None:
    """fitted.json and the tables again from OUT/raw.json, after a change to fit.py; needs no GPU."""
    run.raw = json.loads((run.out / "raw.json").read_text())
    run.fitted = {"provenance": run.raw["provenance"], "shapes": {}, "copy": run.raw.get("copy")}
    for shape in run.shapes():
        if "repeat" in run.raw["shapes"].get(shape.name, {}):
            fit_shape(run, shape)
    report(run.raw, run.fitted["shapes"])


def check_steps(run: Run, shape: Shape, fitted: dict[str, Any]) -> None:
    """Runs recorded steps and prints modelled against measured time."""
    todo = recorded.load(Path(run.args.steps))
    longest = max(max(s.contexts) for s in todo)
    model = run.model(shape, max(s.batch for s in todo), longest, 0)
    timer = Timer(run, model)
    anchors = []
    for b in sorted({1, min(16, model.max_batch), model.max_batch}):  # cells of the grid, timed again here: is it the same machine?
        for a in (a for a in run.grid.actives(shape, b) if a in (shape.top_k, 64, shape.experts)):
            c = timer.cell(b, a, min(run.grid.contexts[0], longest))
            modelled = float(fit.predict(shape, fitted["decode"], [fit.Cell(b, (a,), c["kv_mib"], c["us"])])[0])
            anchors.append({"batch": b, "active": a, "context": c["context"], "measured_us": c["us"], "modelled_us": round(modelled, 2)})
    rows: list[dict[str, Any]] = []
    order = sorted(range(len(todo)), key=lambda i: todo[i].batch)
    for done, i in enumerate(order):
        if time.monotonic() > run.end:
            run.say(f"out of time: {len(order) - done} of {len(order)} steps not run")
            break
        step = todo[i]
        x, replay = timer.decode(step.batch)
        experts = recorded.experts_of(shape, step)
        model.set_contexts(x, step.contexts)
        model.set_experts(x, experts)
        t = summary(run.clock.times(replay))
        active = recorded.active_of(experts)
        cell = fit.Cell(step.batch, active, fit.kv_mib(shape, step.contexts), t["us"])
        modelled = float(fit.predict(shape, fitted["decode"], [cell])[0])
        rows.append({"step": i, "batch": step.batch, "active_mean": sum(active) / len(active), "context_tokens": sum(step.contexts),
                     "measured_us": t["us"], "modelled_us": round(modelled, 2), "error": round(modelled / t["us"] - 1, 5)})  # fmt: skip
    e = [abs(r["error"]) for r in rows]
    total = {
        "steps": len(rows),
        "median": statistics.median(e),
        "p90": sorted(e)[min(len(e) - 1, int(0.9 * len(e)))],
        "worst": max(e),
        "bias": statistics.median(r["error"] for r in rows),
    }
    run.save(
        f"steps-{shape.name}.json",
        {
            "provenance": run.raw["provenance"],
            "shape": shape.name,
            "file": run.args.steps,
            "error": total,
            "anchors": anchors,
            "steps": rows,
        },
    )
    report_steps(shape.name, anchors, rows, total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder for raw.json and fitted.json")
    parser.add_argument("--shapes", default="", help=f"of {', '.join(SHAPES)}; all by default, the first with --steps")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget-s", type=float, default=360.0, help="the least important cells are skipped when time runs short")
    parser.add_argument("--reps", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="few cells: does all of it run? Not for quoting")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, for a dry run")
    parser.add_argument("--steps", help="recorded steps to run against a fit (JSON or npz, see steps.py)")
    parser.add_argument("--fit", help="the fit that --steps checks; OUT/fitted.json by default")
    parser.add_argument("--refit", action="store_true", help="fit again from OUT/raw.json")
    parser.add_argument("--expert-gib", type=float, default=64.0, help="memory for expert sets: one a layer where they fit")
    parser.add_argument("--kv-gib", type=float, default=24.0, help="memory for KV pools")
    args = parser.parse_args()
    args.shapes = args.shapes or (next(iter(SHAPES)) if args.steps else ",".join(SHAPES))
    if args.refit:
        args.device = "cpu"
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no GPU here: --device cpu --tiny is a dry run")
    if args.device == "cpu":
        torch.set_num_threads(1)  # tiny matrices only
    run = Run(args)
    if args.refit or not args.steps:
        (refit if args.refit else profiles)(run)
        return
    run.check_kernels()
    fitted = json.loads(Path(args.fit or run.out / "fitted.json").read_text())["shapes"]
    for shape in run.shapes():
        check_steps(run, shape, fitted[shape.name])
        free(run)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
