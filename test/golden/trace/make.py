"""Golden files that Python's safetensors and NumPy give, for the tests in ../../trace-golden.test.ts.

How to run, in this folder:
    pip install numpy scipy safetensors
    python make.py            writes every-dtype.safetensors, trace.safetensors, golden.json
    python make.py --check FILE…    loads files and prints their tensors as JSON, to compare by eye with what ELDR wrote

The same versions give the same bytes; golden.json names the versions.
"""

import hashlib
import json
import sys

import numpy as np
import safetensors
from safetensors import TensorSpec, safe_open, serialize_file

INTEGERS = {"I8": "i1", "U8": "u1", "I16": "i2", "U16": "u2", "I32": "i4", "U32": "u4", "I64": "i8", "U64": "u8"}
NAMES = {"BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32", "I64": "int64"}
NAMES |= {"U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


def write(path, tensors, metadata):
    """tensors: name -> (safetensors type, array of that type; BF16 as an array of its bits)."""
    specs = {
        name: TensorSpec(dtype=NAMES[dtype], shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (dtype, array) in tensors.items()
    }
    # Python's order of metadata keys is random from call to call: again until it is the one given.
    while True:
        serialize_file(specs, path, metadata)
        with open(path, "rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
        if list(json.loads(header).get("__metadata__", {})) == list(metadata or {}):
            return


def numbers(array):
    """float32 values as JSON holds them."""
    return [float(x) if np.isfinite(x) else str(x) for x in array.astype(np.float32).ravel()]


def every_dtype():
    tensors = {"bool": ("BOOL", np.array([True, False, True]))}
    for dtype, code in INTEGERS.items():
        limits = np.iinfo(code)
        tensors[dtype.lower()] = (dtype, np.array([[limits.min, limits.max], [0, 1], [2, 3]], code))
    tensors["f16"] = ("F16", np.array([0, -0.0, 1, 1 / 3, 65504, 2**-24, np.inf, -np.inf, np.nan, 2**-14], "f2"))
    tensors["f32"] = ("F32", np.array([[0, 1 / 3, -1e30], [np.inf, np.nan, 2**-149]], "f4"))
    tensors["f64"] = ("F64", np.array([0, 1 / 3, 1e300, -np.inf], "f8"))
    tensors["bf16"] = ("BF16", np.array([0x0000, 0x3F80, 0x3EAB, 0xC2F7, 0x7F80, 0x7FC0, 0x0001], "u2"))
    tensors["scalar"] = ("F32", np.array(2.5, "f4"))
    tensors["empty"] = ("I16", np.zeros((3, 0, 2), "i2"))
    # Order by type, then by the bytes of the name; the last two sort the other way round by UTF-16.
    tensors['quote " backslash \\ tab \t bell \a é \u2028'] = ("U8", np.array([1], "u1"))
    tensors["\uffee"] = ("U8", np.array([2], "u1"))
    tensors["\U0001f600"] = ("U8", np.array([3], "u1"))
    tensors["__proto__"] = ("U8", np.array([4], "u1"))
    tensors["10"] = ("U8", np.array([5], "u1"))
    tensors["9"] = ("U8", np.array([6], "u1"))
    write("every-dtype.safetensors", tensors, {"note": "one key, so that the order is not random"})
    out = []
    for name, (dtype, array) in tensors.items():
        value = (array.astype("u4") << 16).view("f4") if dtype == "BF16" else array
        with np.errstate(over="ignore"):
            out.append({"name": name, "dtype": dtype, "shape": array.shape, "hex": array.tobytes().hex(), "float32": numbers(value)})
    return out


def trace():
    """The same as traceTensors in ../../trace-support.ts, without the tensors that a trace need not have, and with 16-bit ids."""
    counts = [3, 3, 0, 0, 1, 2, 3, 0, 4, 0, 4, 0, 4, 4, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0]
    ids = [0, 1, 2, 3, 2, 0, 3, 2, 1, 2, 0, 3, 255, 255, 255, 255, 9, 9, 9, 9, 9, 9, 9, 9]
    tensors = {
        "prefill_counts": ("U16", np.array(counts, "u2").reshape(3, 2, 4)),
        "decode_expert_ids": ("U16", np.array(ids, "u2").reshape(3, 2, 2, 2)),
        "decode_steps": ("U16", np.array([2, 1, 0], "u2")),
        "gate_prob_sum": ("F16", np.full((2, 2, 4), 0.5, "f2")),
    }
    write("trace.safetensors", tensors, {"format": "eldr.trace.v1", "model": "toy", "layers": "2", "experts": "4", "top_k": "2"})


def halves():
    """decode: SHA-256 of the float32 of all 65,536 halves, NaNs replaced by 0. encode: float32 bits and the half each rounds to."""
    decoded = np.arange(65536, dtype="u2").view("f2").astype("f4")
    decoded[np.isnan(decoded)] = 0
    random = np.random.default_rng(1)
    edges = np.array([0, 65504, 65519.996, 65520, 2**-24, 2**-25, 2**-25 * 1.0000001, 2**-26, 2**-14, 2**-14 * 0.99999, 2**-149, np.inf], "f4")
    finite = np.arange(0x7BFF, dtype="u2")[:: 101]
    low, high = finite.view("f2").astype("f4"), (finite + 1).astype("u2").view("f2").astype("f4")
    ties = (low + high) / 2  # exact in float32
    around = random.uniform(-14, 14, 400)
    values = np.concatenate([edges, -edges, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9)), np.exp(around).astype("f4")])
    values = values.astype("f4")
    with np.errstate(over="ignore"):
        encoded = values.astype("f2")
    return {
        "decode": hashlib.sha256(decoded.tobytes()).hexdigest(),
        "encode": {"float32": values.tobytes().hex(), "float16": encoded.tobytes().hex()},
    }


def check(paths):
    for path in paths:
        with safe_open(path, "np") as file:
            keys = sorted(file.keys())
            print(json.dumps({"metadata": file.metadata(), "names": keys}, ensure_ascii=False))
            for key in keys:
                if file.get_slice(key).get_dtype() != "BF16":  # NumPy has no such type
                    array = file.get_tensor(key)
                    print(json.dumps({"name": key, "dtype": str(array.dtype), "shape": array.shape, "hex": array.tobytes().hex()}))


if sys.argv[1:2] == ["--check"]:
    check(sys.argv[2:])
else:
    trace()
    golden = {"numpy": np.__version__, "safetensors": safetensors.__version__, "tensors": every_dtype(), "halves": halves()}
    with open("golden.json", "w", encoding="utf-8", newline="\n") as file:
        json.dump(golden, file, ensure_ascii=True, indent=1)
        file.write("\n")
