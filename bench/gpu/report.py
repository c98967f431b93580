"""The tables that step_profile.py prints; all figures are in its files."""

import statistics
from typing import Any


def report(raw: dict[str, Any], fitted: dict[str, Any]) -> None:
    for name, f in fitted.items():
        _shape(name, f, raw["shapes"][name])
    c = raw.get("copy")
    if c:
        host = f"; to host {c['to_host_gb_s']:.0f}, from host {c['from_host_gb_s']:.0f} GB/s" if "to_host_gb_s" in c else ""
        both = c["device_gb_s_read_and_written"]
        print(f"\ncopy inside the device: {c['device_gb_s_payload']:.0f} GB/s of payload ({both:.0f} read and written){host}")


def _shape(name: str, f: dict[str, Any], raw: dict[str, Any]) -> None:
    d, p, g = f["decode"], f["prefill"], f["fig2"]
    size = raw["expert_set_bytes"] / 2**20
    print(f"\n{name} ({raw['shape']['layers']} layers; {raw['expert_sets']} expert sets of {size:.0f} MiB take turns)")
    for note in f["notes"]:
        print(f"  note: {note}")
    for form in (d, d["other"]):
        if form:
            print(f"  decode, {form['form']}, µs: " + ", ".join(f"{k} {v:.4g}" for k, v in form.items() if isinstance(v, (int, float))))
            for kind, e in form["error"].items():
                if e["cells"]:
                    print(f"    {e['cells']:3d} {kind} cells: error median {e['median']:.2%}, p90 {e['p90']:.2%}, worst {e['worst']:.2%}, "
                          f"bias {e['bias']:+.2%}")  # fmt: skip
    for k in d["kv"]:
        cost = k["perContextKToken"]
        print(f"  KV of {k['layers']} layers, window {k['window']}: {cost:.2f} µs per 1,000 context tokens of the batch")
    print(f"  prefill: {p['base'] / 1e3:.2f} ms + {p['perToken']:.2f} µs per token (worst error {p['error']['worst']:.1%}); "
          + ", ".join(f"{r['tokens']}: {r['us'] / 1e3:.1f} ms" for r in raw["prefill"]))  # fmt: skip
    print("  attention alone, batch " + ", ".join(f"{r['batch']} × {r['context']}: {r['gb_s']:.0f} GB/s" for r in raw["attention"]))
    print(f"  Fig. 2, MoE layer at batch {g['batch']}, µs: " + ", ".join(f"{r['active']}: {r['us_per_layer']:.1f}" for r in g["rows"]))
    low, high = g["ratio_of"]
    print(f"  Fig. 2 ratio {low} → {high} experts: {g['ratio']}×; one cell timed again at the end: {raw['repeat']['change']:+.2%}")
    contexts = sorted({c["context"] for c in raw["decode"]})
    context = contexts[len(contexts) // 2]
    table = {(c["batch"], c["active"]): c["us"] / 1e3 for c in raw["decode"] if c["context"] == context}
    actives = sorted({a for _, a in table})
    print(f"  step in ms at context {context}, by active experts:")
    print("    batch " + "".join(f"{a:>8d}" for a in actives))
    for b in sorted({b for b, _ in table}):
        print(f"    {b:5d} " + "".join(f"{table[b, a]:8.2f}" if (b, a) in table else "       –" for a in actives))


def report_steps(name: str, anchors: list[dict[str, Any]], rows: list[dict[str, Any]], total: dict[str, Any]) -> None:
    print(f"\n{name}: cells of the grid again, modelled against measured: "
          + ", ".join(f"{a['batch']}×{a['active']} {a['modelled_us'] / a['measured_us'] - 1:+.1%}" for a in anchors))  # fmt: skip
    print(f"{name}: {len(rows)} recorded steps, modelled against measured")
    print("  batch     steps  active  measured ms  modelled ms  median error")
    for lo, hi in ((1, 7), (8, 15), (16, 23), (24, 31), (32, 39), (40, 47), (48, 63), (64, 1 << 30)):
        some = [r for r in rows if lo <= r["batch"] <= hi]
        if some:
            mean = {k: statistics.fmean(r[k] for r in some) for k in ("active_mean", "measured_us", "modelled_us")}
            error = statistics.median(abs(r["error"]) for r in some)
            print(f"  {lo:3d}–{min(hi, max(r['batch'] for r in some)):<4d} {len(some):6d} {mean['active_mean']:7.1f} "
                  f"{mean['measured_us'] / 1e3:12.2f} {mean['modelled_us'] / 1e3:12.2f} {error:13.2%}")  # fmt: skip
    print(f"  |error|: median {total['median']:.2%}, p90 {total['p90']:.2%}, worst {total['worst']:.2%}; bias {total['bias']:+.2%}")
