"""Golden vectors of the hand-off (`eldr` in `kv_transfer_params`) and of vLLM's `routed_experts`, from NumPy and the standard library. The
tests of src/wire read vectors.json, and so does whatever else speaks this protocol; this script is run only to change it.

    pip install numpy
    python3 test/golden/wire/make.py

encode    what was counted, and the object that must come of it (as JSON, key for key)
decode    an object, what the reader expects, and the counts it must get or the reason why it must refuse
experts   the same for a .npy file in base64
records   experts of generated tokens, and the `decode` object of a calibration's answer that must come of them; or an object that must be
          refused (no `ids`)

Counts are exact. `recent` is Σ 2^(−d/half_life) over the covered tokens, d being the distance to the last token of the prompt, in 256ths
rounded half up: floor(256·x + 1/2). Every encoder must give the same text for the same ids where no value lies within 1e-6 of a half
(`ids` cases below are chosen so, or have halves that are exact in binary)."""

import base64
import io
import json
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

HERE = Path(__file__).resolve().parent
SHAPE = {"layers": 2, "experts": 4, "top_k": 2}


def u16(values) -> str:
    return base64.b64encode(np.asarray(values).astype("<u2").tobytes()).decode()


def ids_of(rng, tokens, layers, experts, top_k):
    """[tokens][layers][top_k], distinct within a layer and more often low than high, as real gates are uneven."""
    keys = rng.random((tokens, layers, experts)) ** (1 / (1 + 4 * rng.random((1, layers, experts))))
    return np.argsort(-keys, axis=2, kind="stable")[:, :, :top_k]


def tally(ids, experts, known=None):
    """[layers][experts] counts of the known tokens."""
    known = np.ones(len(ids), bool) if known is None else known
    return np.stack([np.bincount(ids[known, l].ravel(), minlength=experts) for l in range(ids.shape[1])])


def recent_of(ids, experts, half_life, known=None):
    known = np.ones(len(ids), bool) if known is None else known
    out = np.zeros((ids.shape[1], experts))
    for t in np.flatnonzero(known):
        for l in range(ids.shape[1]):
            out[l, ids[t, l]] += 2.0 ** ((t + 1 - len(ids)) / half_life)
    return out


def units(recent):
    scaled = recent * 256
    exact = scaled * 2 == np.round(scaled * 2)
    assert np.all(exact | (np.abs(scaled - np.floor(scaled) - 0.5) > 1e-6)), "a value too near a half: take another seed"
    return np.floor(scaled + 0.5).astype(int)


def payload(shape, counts, tokens, covered, recent=None, half_life=None):
    counts = np.asarray(counts)
    shift = 0
    while counts.max(initial=0) >> shift > 0xFFFF:
        shift += 1
    out = {"v": 1, **shape, "tokens": tokens, "covered": covered, "shift": shift, "counts": u16(counts >> shift)}
    return out if recent is None else out | {"recent": u16(units(recent)), "half_life": half_life}


def encode_cases(rng):
    cases = []

    def add(name, shape, tokens, covered, counts, recent=None, half_life=None, ids=None, known=None):
        case = {"name": name, **shape, "tokens": tokens, "covered": covered, "counts": np.asarray(counts).ravel().tolist()}
        if recent is not None:
            case |= {"recent": np.asarray(recent).ravel().tolist(), "half_life": half_life}
        if ids is not None:
            case |= {"ids": np.asarray(ids).tolist()} | ({} if known is None else {"known": known.astype(int).tolist()})
        cases.append(case | {"payload": payload(shape, counts, tokens, covered, recent, half_life)})

    def from_ids(name, shape, tokens, half_life=None, known=None):
        ids = ids_of(rng, tokens, *shape.values())
        recent = None if half_life is None else recent_of(ids, shape["experts"], half_life, known)
        covered = tokens if known is None else int(known.sum())
        add(name, shape, tokens, covered, tally(ids, shape["experts"], known), recent, half_life, ids, known)

    from_ids("a short prompt", SHAPE, 7)
    from_ids("one token", SHAPE, 1, 64)
    from_ids("recent counts", SHAPE, 23, 64)
    from_ids("recent counts of half-life 1, with halves that go up", SHAPE, 10, 1)
    from_ids("recent counts of a half-life that is not whole", SHAPE, 12, 2.5)
    from_ids("a prefix that nobody saw", SHAPE, 20, 16, np.arange(20) >= 8)
    from_ids("holes within a prompt", SHAPE, 20, 16, np.arange(20) % 3 != 1)
    from_ids("one layer, one expert a token", {"layers": 1, "experts": 3, "top_k": 1}, 9, 8)
    from_ids("padding of one character", {"layers": 1, "experts": 4, "top_k": 2}, 5)
    from_ids("padding of two characters", {"layers": 1, "experts": 5, "top_k": 2}, 5)
    from_ids("no padding", {"layers": 1, "experts": 3, "top_k": 2}, 5)
    add("nothing covered", SHAPE, 9, 0, np.zeros((2, 4), int))
    full = 65535
    add("the largest counts without a shift", SHAPE, full, full, [[full, full, 0, 0], [full, full - 5, 5, 0]])
    add("one more token, so a shift of 1", SHAPE, 65536, 65536, [[65536, 65535, 1, 0], [65536, 65536, 0, 0]])
    add("a long prompt whose counts all fit, so no shift", SHAPE, 100000, 100000, [[50000] * 4, [65535, 34465, 50001, 49999]])
    long = 1_000_003
    add("a million tokens", SHAPE, long, long, [[long, 600001, 400001, 1], [500001, 500003, 500001, 500001]])
    last = 1 / (1 - 2 ** (-1 / 177))  # the largest that a value can be
    add("the largest recent values", SHAPE, 60000, 60000, [[60000, 60000, 0, 0]] * 2, np.array([[last, last, 0, 0]] * 2), 177)
    big = {"layers": 16, "experts": 128, "top_k": 8}
    ids = ids_of(rng, 400, *big.values())
    add("sixteen layers of 128 experts", big, 400, 400, tally(ids, 128), np.round(recent_of(ids, 128, 64), 6), 64)
    return cases


def decode_cases(rng, encoded):
    cases = []
    expects = lambda shape, **more: {**shape, "min_covered": 0.5, **more}

    def add(name, value, reject=None, expected=None, **result):
        result = {"reject": reject} if reject else result
        cases.append({"name": name, "value": value, "expected": expected or expects(SHAPE), "result": result})

    for case in encoded:
        sent = case["payload"]
        shape = {key: case[key] for key in SHAPE}
        expected = expects(shape) | ({"half_life": case["half_life"]} if "recent" in case else {})
        if case["covered"] == 0:
            add(f"{case['name']}: a reader that asks for none", sent, None, expects(shape, min_covered=0), counts=[0] * 8, tokens=9, covered=0)
            add(f"{case['name']}: a reader that asks for half", sent, "too_little_covered")
            continue
        counts = (np.array(case["counts"]) >> sent["shift"]).tolist()
        recent = {"recent": (units(np.array(case["recent"])) / 256).tolist()} if "recent" in case else {}
        add(case["name"], sent, None, expected, counts=counts, tokens=case["tokens"], covered=case["covered"], **recent)

    by_name = {case["name"]: case["payload"] for case in encoded}
    plain, recent, shifted = by_name["a short prompt"], by_name["recent counts"], by_name["a million tokens"]
    flat = lambda p: np.frombuffer(base64.b64decode(p["counts"]), "<u2")
    good = {"counts": flat(recent).tolist(), "tokens": 23, "covered": 23}
    without = lambda p, *keys: {key: value for key, value in p.items() if key not in keys}

    add("recent counts that nobody asked for", recent, **good)
    add("recent counts of another half-life than asked for", recent, expected=expects(SHAPE, half_life=32), **good)
    add("no recent counts although asked for", without(recent, "recent", "half_life"), expected=expects(SHAPE, half_life=64), **good)
    add("recent counts that are null", recent | {"recent": None}, expected=expects(SHAPE, half_life=64), **good)
    add("keys of a later minor version", recent | {"capture": "slots", "decode": {}}, **good)
    add("exactly as much covered as asked for", by_name["a prefix that nobody saw"], expected=expects(SHAPE, min_covered=0.6),
        counts=flat(by_name["a prefix that nobody saw"]).tolist(), tokens=20, covered=12)  # fmt: skip
    add("less covered than asked for", by_name["a prefix that nobody saw"], "too_little_covered", expects(SHAPE, min_covered=0.61))

    add("null", None, "missing")
    add("an object that was never filled", {}, "missing")
    add("no counts", without(plain, "counts"), "missing")
    for name, value in {"a number": 5, "a text": plain["counts"], "true": True}.items():
        add(name, value, "bad_value")
    add("a list", [plain], "missing")
    for version in [2, "1", None, 1.5]:
        add(f"version {json.dumps(version)}", plain | {"v": version}, "wrong_version")
    add("no version", without(plain, "v"), "wrong_version")
    for key, value in [("layers", 3), ("layers", "2"), ("experts", 8), ("experts", None), ("experts", -4)]:
        add(f"{key} {json.dumps(value)}", plain | {key: value}, "wrong_shape")
    for value in [3, 0, "2", None]:
        add(f"top_k {json.dumps(value)}", plain | {"top_k": value}, "wrong_model")
    for key, values in {"tokens": [0, -7, 7.5, "7", None, 1e300], "covered": [8, -1, 6.5, "7", None], "shift": [-1, 0.5, 16, 64, "0", None, 1]}.items():
        for value in values:
            add(f"{key} {json.dumps(value)}", plain | {key: value}, "bad_value")
    for key in ["tokens", "covered", "shift"]:
        add(f"no {key}", without(plain, key), "bad_value")
    for value in [5, [1, 2], {"a": 1}, False]:
        add(f"counts {json.dumps(value)}", plain | {"counts": value}, "bad_value")
    add("counts null", plain | {"counts": None}, "bad_value")

    text = plain["counts"]
    swap = lambda at, new: text[:at] + new + text[at + len(new) :]
    broken = {
        "empty": "",
        "one character short": text[:-1],
        "four characters short": text[:-4],
        "four characters long": text + "AAAA",
        "no padding": text.rstrip("="),
        "a space": swap(5, " "),
        "a line feed": swap(5, "\n"),
        "a line feed after": text + "\n",
        "an exclamation mark": swap(3, "!"),
        "the URL alphabet": swap(3, "-"),
        "the URL alphabet, the other": swap(3, "_"),
        "padding in the middle": swap(6, "=="),
        "all padding": "=" * len(text),
        "a letter that is A in its low byte": swap(5, "\u0141"),
        "an emoji": swap(4, "\U0001f600")[: len(text) - 1],
        "bits behind the last byte": text[:-3] + chr(ord(text[-3]) + 1) + text[-2:],
        "a zero byte": swap(2, "\0"),
    }
    assert text.endswith("==")
    for name, value in broken.items():
        add(f"base64 with {name}", plain | {"counts": value}, "bad_base64")
        add(f"recent in base64 with {name}", recent | {"recent": value}, "bad_base64", expects(SHAPE, half_life=64))

    off = flat(plain).copy()
    off[2] += 1
    add("one count too many", plain | {"counts": u16(off)}, "bad_sums")
    off = flat(plain).copy()
    off[int(off.argmax())] -= 1
    add("one count too few", plain | {"counts": u16(off)}, "bad_sums")
    add("counts of another prompt", recent | {"counts": plain["counts"]}, "bad_sums")
    add("counts with their bytes swapped", plain | {"counts": base64.b64encode(flat(plain).byteswap().tobytes()).decode()}, "bad_sums")
    add("zeros", plain | {"counts": u16([0] * 8)}, "bad_sums")
    # 4 experts and a shift of 4: truncation takes at most 4 × 15 of a layer's sum.
    true = 2 * shifted["covered"]
    assert shifted["shift"] == 4
    for name, sum_, reject in [
        ("as much as truncation can take", -(-(true - 60) // 16), None),
        ("more than truncation can take", -(-(true - 60) // 16) - 1, "bad_sums"),
        ("nothing lost", true // 16, None),
        ("more than there are", true // 16 + 1, "bad_sums"),
    ]:
        layer = [60000, 60000, 0, sum_ - 120000]
        more = {} if reject else {"counts": layer * 2, "tokens": shifted["tokens"], "covered": shifted["covered"]}
        add(f"shifted sums: {name}", shifted | {"counts": u16(layer * 2)}, reject, **more)
    add("a shift that nothing called for", by_name["the largest counts without a shift"] | {"shift": 1, "counts": u16([0] * 8)}, "bad_value")

    half = expects(SHAPE, half_life=64)
    for value in [0, 0.5, 178, -64, "64", None]:
        add(f"half_life {json.dumps(value)}", recent | {"half_life": value}, "bad_value", half)
    for value in [5, [], {}, True]:
        add(f"recent {json.dumps(value)}", recent | {"recent": value}, "bad_value", half)
    add("recent values that no prompt can have", recent | {"recent": u16([60000, 0, 0, 0] * 2)}, "bad_sums", half)
    add("recent values that are zero", recent | {"recent": u16([0] * 8)}, expected=half, **good, recent=[0.0] * 8)
    return cases


def npy_text(array, version=None):
    file = io.BytesIO()
    npy.write_array(file, array, version=version)
    return base64.b64encode(file.getvalue()).decode()


def header_text(header, data=b"", version=(1, 0), length=None):
    """A .npy file of a header that NumPy would not write."""
    raw = header.encode("latin1")
    size = len(raw) if length is None else length
    return base64.b64encode(b"\x93NUMPY" + bytes(version) + size.to_bytes(2 if version[0] == 1 else 4, "little") + raw + data).decode()


def experts_cases(rng):
    cases = []

    def add(name, value, reject=None, prompt_tokens=6, expected=None, **result):
        expected = {**SHAPE, "min_covered": 0.5, "prompt_tokens": prompt_tokens} | (expected or {})
        cases.append({"name": name, "value": value, "expected": expected, "result": {"reject": reject} if reject else result})

    ids = ids_of(rng, 6, *SHAPE.values())
    counts = lambda ids, known=None: {"counts": tally(ids, 4, known).ravel().tolist()}
    good = {**counts(ids), "tokens": 6, "covered": 6}
    for dtype in ["u1", "<u2", "<i2", "<i4", "<i8"]:
        add(f"type {dtype}", npy_text(ids.astype(dtype)), **good)
    for version in [(1, 0), (2, 0), (3, 0)]:
        add(f"format {version[0]}.{version[1]}", npy_text(ids.astype("<i4"), version), **good)
    head = "{'shape': (6, 2, 2), 'fortran_order': False, 'descr': '<i8'}"
    add("a header of another order, without padding, values not aligned", header_text(head, ids.astype("<i8").tobytes()), **good)
    add("recent counts", npy_text(ids.astype("u1")), expected={"half_life": 3}, **good, recent=recent_of(ids, 4, 3).ravel().tolist())
    add("rows of generated tokens too", npy_text(ids.astype("u1")), prompt_tokens=4, **counts(ids[:4]), tokens=4, covered=4)
    add("fewer rows than tokens", npy_text(ids.astype("u1")), prompt_tokens=9, **counts(ids), tokens=9, covered=6)
    add("too few rows", npy_text(ids.astype("u1")), "too_little_covered", prompt_tokens=13)
    holes = ids.copy()
    holes[1:3] = 0
    known = np.array([1, 0, 0, 1, 1, 1], bool)
    add("rows of zeros, which nobody wrote", npy_text(holes.astype("u1")), **counts(ids, known), tokens=6, covered=4)
    holes[1:3] = -1
    add("rows of −1, which nobody wrote", npy_text(holes.astype("<i2")), **counts(ids, known), tokens=6, covered=4)
    holes[:4] = 0
    add("nearly nothing but such rows", npy_text(holes.astype("u1")), "too_little_covered")
    add("no rows", npy_text(ids[:0].astype("u1")), "too_little_covered")

    add("null", None, "missing")
    for value in [5, [], {}, True]:
        add(json.dumps(value), value, "bad_value")
    add("empty", "", "bad_value")
    text = npy_text(ids.astype("u1"))
    add("a character short", text[:-1], "bad_base64")
    add("four characters short", text[:-4], "bad_base64")
    add("four characters long", text + "AAAA", "bad_base64")
    add("a space in the header", text[:9] + " " + text[10:], "bad_base64")
    add("the URL alphabet", text[:-2] + "_" + text[-1:], "bad_base64")
    add("another magic", base64.b64encode(b"\x93NUMPI" + base64.b64decode(text)[6:]).decode(), "bad_value")
    add("only a magic", base64.b64encode(b"\x93NUMPY").decode(), "bad_value")
    add("format 4.0", base64.b64encode(base64.b64decode(text)[:6] + b"\4" + base64.b64decode(text)[7:]).decode(), "bad_value")
    for version in [(0, 0), (4, 0)]:
        text4 = header_text("{'descr': '|u1', 'fortran_order': False, 'shape': (6, 2, 2), }", ids.astype("u1").tobytes(), version)
        add(f"format {version[0]}.{version[1]}, whole", text4, "bad_value")
    for descr in ["|i2", "i2", "=i2"]:
        add(f"type {descr}, of no order", header_text(head.replace("<i8", descr), ids.astype("<i2").tobytes()), "bad_value")
    add("a header longer than the file", header_text(head, length=60000), "bad_value")
    add("a header of 4 GiB", header_text(head, version=(2, 0), length=2**32 - 1), "bad_value")
    add("Fortran order", npy_text(np.asfortranarray(ids.astype("u1"))), "bad_value")
    for dtype in [">i4", "<f4", "<u4", "<u8", "?", "S1"]:
        add(f"type {dtype}", npy_text(ids.astype(dtype)), "bad_value")
    add("two dimensions", npy_text(ids.astype("u1")[:, 0]), "wrong_shape")
    add("no dimension", npy_text(np.uint8(3)), "wrong_shape")
    add("other layers", npy_text(ids.astype("u1")), "wrong_shape", expected={"layers": 3})
    add("another top_k", npy_text(ids.astype("u1")), "wrong_model", expected={"top_k": 4})
    add("a shape beyond the data", header_text("{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999, 2, 2), }", b"\0" * 24), "bad_base64")
    add("a shape beyond any number", header_text("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 2, 2), }", b"\0" * 24), "bad_value")
    add("a negative shape", header_text("{'descr': '|u1', 'fortran_order': False, 'shape': (-6, 2, 2), }", b"\0" * 24), "bad_value")
    add("a header that is code", header_text("__import__('os').system('true')", b"\0" * 24), "bad_value")
    high = ids.astype("<i8")
    for name, value in [("the number of experts", 4), ("beyond 32 bits", 2**32), ("the least of 64 bits", -(2**63)), ("−2", -2)]:
        bad = high.copy()
        bad[5, 1, 1] = value
        add(f"an id that is {name}", npy_text(bad), "bad_value")
    return cases


def record_cases(rng):
    cases = []

    def add(name, shape, steps, dtype):
        ids = ids_of(rng, steps, *shape.values())
        text = base64.b64encode(ids.astype({"u8": "u1", "u16": "<u2"}[dtype]).tobytes()).decode()
        cases.append({"name": name, **shape, "steps": steps, "ids": ids.ravel().tolist(), "payload": {"steps": steps, "dtype": dtype, "ids": text}})
        return cases[-1]["payload"]

    good = add("a short answer", SHAPE, 3, "u8")
    add("no step", SHAPE, 0, "u8")
    add("the most experts that fit a byte", {"layers": 2, "experts": 256, "top_k": 3}, 5, "u8")
    add("more experts than fit a byte", {"layers": 2, "experts": 257, "top_k": 3}, 5, "u16")
    add("ids of two bytes", {"layers": 1, "experts": 700, "top_k": 4}, 4, "u16")
    text = good["ids"]
    bad = {
        "null": None,
        "a list": [good],
        "steps that are not whole": good | {"steps": 3.5},
        "negative steps": good | {"steps": -1},
        "more steps than ids": good | {"steps": 4},
        "steps beyond any memory": good | {"steps": 2**53},
        "another type": good | {"dtype": "u4"},
        "the wider type": good | {"dtype": "u16"},
        "ids that are a list": good | {"ids": [1, 2]},
        "base64 without its padding": good | {"ids": text.rstrip("=")[:-1]},
        "the URL alphabet": good | {"ids": "_" + text[1:]},
        "an id that is the number of experts": good | {"ids": base64.b64encode(bytes([4]) + base64.b64decode(text)[1:]).decode()},
    }
    cases.extend({"name": name, **SHAPE, "payload": value} for name, value in bad.items())
    return cases


def main():
    rng = np.random.default_rng(20)
    encoded = encode_cases(rng)
    vectors = {"about": f"made by make.py with NumPy {np.__version__}", "encode": encoded}
    vectors |= {"decode": decode_cases(rng, encoded), "experts": experts_cases(rng)}
    vectors |= {"records": record_cases(rng)}
    lines = [f'"about": {json.dumps(vectors["about"])}']
    for kind in ["encode", "decode", "experts", "records"]:
        names = [case["name"] for case in vectors[kind]]
        assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
        lines.append(f'"{kind}": [\n' + ",\n".join(json.dumps(case) for case in vectors[kind]) + "\n]")
    (HERE / "vectors.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print({kind: len(vectors[kind]) for kind in ["encode", "decode", "experts", "records"]}, (HERE / "vectors.json").stat().st_size)


main()
