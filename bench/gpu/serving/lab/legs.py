"""Single requests over a kept connection, timed from the first byte sent to the last byte received."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from .servers import Server, ServerFailed

WANTED = {"do_remote_decode": True, "do_remote_prefill": False}


class Client:
    def __init__(self, server: Server, timeout_s: float = 120) -> None:
        self.server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout_s)

    def complete(self, prompt: list[int], max_tokens: int = 1, **more: Any) -> tuple[float, dict[str, Any]]:
        """Milliseconds and the response of a greedy completion."""
        body = {"model": "model", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **more}
        data = json.dumps(body).encode()
        try:
            ms, status, text = self._exchange(data)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):  # closed while it was idle
            self._connection.close()
            ms, status, text = self._exchange(data)
        if status != 200:
            raise ServerFailed(f"{self.server.name}: HTTP {status} {text[:800].decode(errors='replace')}")
        return ms, json.loads(text)

    def _exchange(self, data: bytes) -> tuple[float, int, bytes]:
        began = time.perf_counter()
        self._connection.request("POST", "/v1/completions", data, {"content-type": "application/json"})
        response = self._connection.getresponse()
        text = response.read()
        return 1000 * (time.perf_counter() - began), response.status, text


def prefill_leg(prefill: Client, decode: Client, prompt: list[int]) -> tuple[float, float, dict[str, Any] | None]:
    """Milliseconds of the prefill leg and of the decode leg, which frees the blocks; and the plugin's hand-off."""
    first_ms, first = prefill.complete(prompt, kv_transfer_params=WANTED)
    params = dict(first["kv_transfer_params"])
    sent = params.pop("eldr", None)
    second_ms, _ = decode.complete(prompt, kv_transfer_params=params)
    return first_ms, second_ms, sent
