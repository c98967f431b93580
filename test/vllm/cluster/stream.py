"""A client that reads a stream event by event and can leave during it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from servers import ANSWER_SECONDS, Server


class Stream:
    """Sent on construction; `begin` waits for the head of the response."""

    def __init__(self, server: Server, body: dict[str, Any], request_id: str = "") -> None:
        where = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=ANSWER_SECONDS)
        headers = {"content-type": "application/json", "x-eldr-debug": "1", **({"x-request-id": request_id} if request_id else {})}
        self._connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), headers)
        self.done = False
        self.text = ""
        self.error: dict[str, Any] | None = None

    def begin(self) -> Stream:
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.worker = self._answer.headers.get("x-eldr-decode-worker", "")
        return self

    def events(self) -> Iterator[dict[str, Any]]:
        """Events as they arrive. `done`: the stream ended correctly."""
        for line in self._answer:
            data = line.strip().removeprefix(b"data: ")
            if data == b"[DONE]":
                self.done = True
            elif data and not data.startswith(b":"):
                event: dict[str, Any] = json.loads(data)
                self.error = event.get("error", self.error)
                self.text += "".join(choice["text"] for choice in event.get("choices", []))
                yield event

    def read(self) -> Stream:
        for _ in self.events():
            pass
        return self

    def leave(self) -> None:
        """Like a client whose process exits."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()
