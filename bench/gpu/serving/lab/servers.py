"""Processes with a port, started in a session of their own and found again by name in a later command: vLLM
servers and gateways. Files of each are in the stage's `run` folder: NAME.pid.json, NAME.log."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .say import say

_NOISE = (" Route: /", '"GET /health', '"GET /metrics')


class ServerFailed(Exception):
    """A server that ended, is late, or answers with an error. The message ends with the end of its log."""


@dataclass(slots=True)
class Server:
    name: str
    port: int
    pid: int
    key: str
    started: float  # seconds since the epoch
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def alive(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0] != 0:
                return False
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def answers(self, path: str = "/health") -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def post(self, path: str, body: dict[str, Any], timeout_s: float = 120) -> Any:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise ServerFailed(f"{self.name}: HTTP {error.code} {error.read().decode(errors='replace')[:1500]}") from error

    def metrics(self) -> dict[str, float]:
        """The value of every line of /metrics, by name and labels."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))}

    def lines(self, *words: str) -> list[str]:
        """Log lines with any of the words."""
        text = self.log.read_text(errors="replace").splitlines()
        return [line[-300:] for line in text if any(word in line for word in words)]

    def tail(self, count: int = 40) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in text if not any(noise in line for noise in _NOISE)][-count:])

    def signal(self, number: int, whole_session: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number) if whole_session else os.kill(self.pid, number)


def total(values: dict[str, float], name: str, *labels: str) -> float:
    """Sum of a metric over its labels, or over those that contain all of the given ones."""
    return sum(
        value for key, value in values.items() if (key == name or key.startswith(name + "{")) and all(label in key for label in labels)
    )


class Processes:
    """The servers of a stage."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def launch(self, name: str, command: list[str], port: int, env: dict[str, str]) -> Server:
        self.run.mkdir(parents=True, exist_ok=True)
        log = self.run / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True
            )
        server = Server(name, port, process.pid, key_of(command, env), time.time(), log)
        about = {"name": name, "port": port, "pid": server.pid, "key": server.key, "started": server.started}
        (self.run / f"{name}.pid.json").write_text(json.dumps(about))
        return server

    def find(self, name: str) -> Server | None:
        """The running server of that name."""
        try:
            about = json.loads((self.run / f"{name}.pid.json").read_text())
        except (OSError, ValueError):
            return None
        server = Server(about["name"], about["port"], about["pid"], about["key"], about["started"], self.run / f"{name}.log")
        return server if server.alive() else None

    def all(self) -> list[Server]:
        names = [path.name.removesuffix(".pid.json") for path in sorted(self.run.glob("*.pid.json"))]
        return [server for server in map(self.find, names) if server is not None]

    def stop(self, servers: list[Server], seconds: float = 12) -> None:
        for server in servers:
            server.signal(signal.SIGTERM)
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(server.alive() for server in servers):
            time.sleep(0.1)
        for server in servers:
            server.signal(signal.SIGKILL, whole_session=True)
            while server.alive():
                time.sleep(0.02)
            (self.run / f"{server.name}.pid.json").unlink(missing_ok=True)


def key_of(command: list[str], env: dict[str, str]) -> str:
    """Equal for servers that were started in the same way, whatever their ports."""
    ours = {key: value for key, value in env.items() if key.startswith(("VLLM_", "ELDR_", "UCX_")) and "PORT" not in key}
    words = [word for before, word in zip(["", *command], command, strict=False) if before != "--port"]
    return hashlib.sha256(json.dumps([words, sorted(ours.items())]).encode()).hexdigest()[:16]


def wait_ready(servers: list[Server], seconds: float, path: str = "/health", must: bool = True) -> dict[str, float]:
    """Seconds from start to ready of each. Raises if one ends or is late, unless must is false: then it is
    missing in the result."""
    end, took, waiting, failed = time.monotonic() + seconds, {}, list(servers), []
    while waiting and time.monotonic() < end:
        for server in list(waiting):
            if server.answers(path):
                took[server.name] = round(time.time() - server.started, 1)
                waiting.remove(server)
            elif not server.alive():
                failed.append(f"{server.name} ended\n{server.tail(60)}")
                waiting.remove(server)
        if waiting:
            time.sleep(0.1)
    failed += [f"{server.name} is not ready after {seconds:.0f} s\n{server.tail(30)}" for server in waiting]
    if failed and must:
        raise ServerFailed("\n\n".join(failed))
    for text in failed:
        say(text)
    return took


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
