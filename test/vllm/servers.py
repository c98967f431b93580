"""Starts and stops real servers: vLLM on the CPU, configured for two cores, and the gateway."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from model import unpacked

ROOT = Path(__file__).resolve().parents[2]
MODEL = unpacked()
ELDR = ["node", str(ROOT / "dist" / "cli" / "main.js")]
# Imports alone take a server ten seconds on a quiet machine; a busy one may need minutes.
READY_SECONDS = float(os.environ.get("ELDR_READY_SECONDS", "600"))
ANSWER_SECONDS = 300
NOISE = (" Route: /", '"GET /health HTTP', '"GET /metrics HTTP')
# All running servers, so that a failure can show their logs and none outlives the tests.
ALIVE: list[Server] = []


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """A process with a port. Its output goes to a file; the end of it is shown on failure."""

    def __init__(self, name: str, command: list[str], port: int, env: dict[str, str], folder: Path, ready_path: str = "/health") -> None:
        self.name, self.url, self.log = name, f"http://127.0.0.1:{port}", folder / f"{name}.log"
        self.ready_path = ready_path
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        ALIVE.append(self)

    def wait_until_ready(self) -> Server:
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}\n{self.tail()}")
            try:
                with urllib.request.urlopen(self.url + self.ready_path, timeout=2):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} is not ready after {READY_SECONDS} s\n{self.tail()}")

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                parsed: dict[str, Any] = json.loads(answer.read())
                return parsed
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{self.name}: {error.code} {error.read().decode()[:2000]}\n{self.tail()}") from error

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())

    def metrics(self) -> dict[str, float]:
        """The value of every line of /metrics."""
        values: dict[str, float] = {}
        for line in self.get("/metrics").splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def values(self, name: str, *labels: str) -> list[float]:
        """Values of a metric whose labels contain all the given ones, such as 'leg="decode"'."""
        found = {key: value for key, value in self.metrics().items() if key == name or key.startswith(name + "{")}
        return [value for key, value in found.items() if all(label in key for label in labels)]

    def logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def tail(self, lines: int = 60) -> str:
        """The end of its log, without lines that are always there."""
        kept = [line for line in self.log.read_text(errors="replace").splitlines() if not any(noise in line for noise in NOISE)]
        return "\n".join(kept[-lines:])

    def signal_all(self, number: int) -> None:
        """Signals the server and every process that it started: they are one session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal_all(signal.SIGKILL)
        self.process.wait()
        if self in ALIVE:
            ALIVE.remove(self)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        self.kill()


@atexit.register
def _kill_all() -> None:
    for server in ALIVE:
        server.kill()


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Polls, because there is no event to wait for."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


# Lease of unread blocks on prefill: half of vLLM's default, so that tests of it take half as long.
LEASE_SECONDS = 15


def nixl(role: str) -> dict[str, Any]:
    settings = {"kv_lease_duration": LEASE_SECONDS}
    return {"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu", "kv_connector_extra_config": settings}


def eldr(role: str, **settings: Any) -> dict[str, Any]:
    return {"kv_connector": "EldrConnector", "kv_role": role, "kv_connector_extra_config": settings}


def both(role: str, **settings: Any) -> dict[str, Any]:
    """NIXL together with the plugin."""
    return {
        "kv_connector": "MultiConnector",
        "kv_role": role,
        "kv_connector_extra_config": {"connectors": [nixl(role), eldr(role, **settings)]},
    }


# One thread each without spinning: several engines share two cores.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def inherited() -> dict[str, str]:
    """Keeps bytecode: imports take seconds without it."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | ENVIRONMENT


def vllm(name: str, folder: Path, transfer: dict[str, Any] | None, *flags: str, port: int = 0, **environment: str) -> Server:
    port = port or free_port()
    env = inherited() | {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        "ELDR_NIXL_DELAY_US": "1000",
        **environment,
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(MODEL), "--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"]
    if transfer is not None:
        command += ["--kv-transfer-config", json.dumps(transfer)]
    return Server(name, [*command, *flags], port, env, folder)


def gateway(folder: Path, prefill: list[str], decode: list[str], *flags: str, name: str = "gateway", **settings: Any) -> Server:
    """A gateway in front of workers p0, p1, … and d0, d1, …, given by URL. `settings` go into its configuration file."""
    port = free_port()
    file = folder / f"{name}.json"
    workers = {
        kind: [{"url": url, "id": f"{kind[0]}{index}"} for index, url in enumerate(urls)]
        for kind, urls in (("prefill", prefill), ("decode", decode))
    }
    file.write_text(json.dumps({"lease": {"durationMs": LEASE_SECONDS * 1000}, **settings, "workers": workers}))
    command = [*ELDR, "serve", "--port", str(port), "--config", str(file), *flags]
    return Server(name, command, port, dict(os.environ), folder, "/ready")


@contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    """Starts them in parallel; stops all, even if one does not come up."""
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        for server in servers:
            server.wait_until_ready()
        yield servers
