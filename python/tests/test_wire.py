"""The codec against the golden vectors that it shares with TypeScript."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_vllm import wire
from eldr_vllm.store import recent_units

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "test" / "golden" / "wire" / "vectors.json").read_text(encoding="utf-8"))


def named(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in VECTORS[kind]]


@pytest.mark.parametrize("case", named("encode"))
def test_encodes_the_golden_object(case: dict[str, Any]) -> None:
    shape = (case["layers"], case["experts"])
    captured = wire.Captured(
        top_k=case["top_k"],
        tokens=case["tokens"],
        covered=case["covered"],
        counts=np.array(case["counts"]).reshape(shape),
        recent=recent_units(np.array(case["recent"]).reshape(shape)) if "recent" in case else None,
        half_life=case.get("half_life"),
    )
    assert json.dumps(wire.encode(captured)) == json.dumps(case["payload"])


@pytest.mark.parametrize("case", named("decode"))
def test_reads_valid_objects_and_rejects_all_others(case: dict[str, Any]) -> None:
    result, expected = case["result"], wire.Expected(**case["expected"])
    got = wire.read(case["value"], expected)
    if "reject" in result:
        assert got == result["reject"]
        return
    assert isinstance(got, wire.Handoff), got
    assert got.counts.tolist() == result["counts"]
    assert (got.tokens, got.covered) == (result["tokens"], result["covered"])
    assert (got.recent is None) == ("recent" not in result)
    if got.recent is not None:
        assert got.recent.tolist() == result["recent"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in VECTORS["records"] if "ids" in case])
def test_encodes_the_golden_decode_ids(case: dict[str, Any]) -> None:
    ids = np.array(case["ids"], np.uint16).reshape(case["steps"], case["layers"], case["top_k"])
    assert json.dumps(wire.encode_decode(ids, case["experts"])) == json.dumps(case["payload"])


@pytest.mark.parametrize(("experts", "dtype", "width"), [(256, "u8", 1), (257, "u16", 2)])
def test_decode_ids_take_two_bytes_above_256_experts(experts: int, dtype: str, width: int) -> None:
    ids = np.array([[[0, experts - 1], [1, 2]], [[3, 4], [5, 6]], [[7, 8], [9, 10]]])
    sent = wire.encode_decode(ids, experts)
    assert (sent["steps"], sent["dtype"]) == (3, dtype)
    raw = np.frombuffer(base64.b64decode(sent["ids"]), np.uint8 if width == 1 else "<u2")
    assert raw.reshape(3, 2, 2).tolist() == ids.tolist()


def test_an_off_reason_reads_as_missing() -> None:
    assert wire.read({"off": "no router"}, wire.Expected(2, 4, 2)) == "missing"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["v", "layers", "experts", "top_k", "tokens", "covered", "shift", "counts", "recent", "half_life"]


@settings(max_examples=300, derandomize=True)
@given(changed=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), whole=JSON)
def test_no_input_raises(changed: dict[str, Any], whole: Any) -> None:
    sent = next(case["payload"] for case in VECTORS["encode"] if case["name"] == "recent counts")
    expected = wire.Expected(2, 4, 2, half_life=64)
    for value in (whole, sent | changed):
        got = wire.read(value, expected)
        assert isinstance(got, wire.Handoff) or got in wire.REJECTS
