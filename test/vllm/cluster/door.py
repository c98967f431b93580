"""A proxy to a server that can be closed: new connections are then refused and open ones end, while the server keeps running. Subclasses
may inspect the traffic."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Door:
    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._to = (str(target.hostname), int(target.port or 80))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shut()

    def shut(self) -> None:
        # Without the shutdown a thread in accept() keeps the port open.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inside, _ = self._listener.accept()
                outside = socket.create_connection(self._to)
                self._open += [inside, outside]
                for one, other, look in ((inside, outside, self.asked), (outside, inside, self.answered)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pump, args=(one, other, look), daemon=True).start()

    def asked(self, data: bytes) -> None:
        """Bytes from a client arrived."""

    def answered(self, data: bytes) -> None:
        """Bytes from the server arrived."""

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket, look: Callable[[bytes], None]) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                look(data)
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
