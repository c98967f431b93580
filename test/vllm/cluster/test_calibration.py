"""A plain server with the plugin returns the experts of each generated token for a calibration request."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from oracle import counts_of, experts_of, prompts, u16

from cluster.cluster import Cluster


def test_decode_ids_equal_a_forward_pass(cluster: Cluster) -> None:
    server = cluster.alone

    def ask(prompt: tuple[int, ...]) -> Any:
        body = {"model": "tiny", "prompt": list(prompt), "max_tokens": 17, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        return server.post("/v1/completions", body | {"kv_transfer_params": {"eldr": {"record": "decode"}}})

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, prompts()))
    for prompt, answer in zip(prompts(), answers, strict=True):
        sent = answer["kv_transfer_params"]["eldr"]
        generated = tuple(answer["choices"][0]["token_ids"])
        assert u16(sent["counts"], 6).tolist() == counts_of(prompt).astype(int).tolist()
        assert (sent["decode"]["steps"], sent["decode"]["dtype"]) == (16, "u8")
        got = np.frombuffer(base64.b64decode(sent["decode"]["ids"]), np.uint8).reshape(16, 6, 8)
        expected = experts_of(prompt + generated[:-1])[len(prompt) :]
        assert np.sort(got, axis=2).tolist() == np.sort(expected, axis=2).tolist()
    plain = server.post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 2})
    assert plain.get("kv_transfer_params") is None
