"""Starts and stops real servers: vLLM on the CPU, with the recipe that two cores bear, and the gateway."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("ELDR_TINY_MODEL", ROOT.parent / "shared" / "model"))
# Imports alone take a server ten seconds on a quiet machine; a busy one may need minutes.
READY_SECONDS = float(os.environ.get("ELDR_READY_SECONDS", "600"))
ANSWER_SECONDS = 300


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """A process with a port. What it writes goes to a file, of which the end is shown when it does not do as it should."""

    def __init__(self, name: str, command: list[str], port: int, env: dict[str, str], folder: Path, ready_path: str = "/health") -> None:
        self.name, self.url, self.log = name, f"http://127.0.0.1:{port}", folder / f"{name}.log"
        self.ready_path = ready_path
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)

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
        """Value of every line of /metrics, labels of vLLM's own (model, engine) left out."""
        values: dict[str, float] = {}
        for line in self.get("/metrics").splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """The server and every process that it has started: they are a session of their own."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def nixl(role: str) -> dict[str, Any]:
    return {"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu"}


def eldr(role: str, **settings: Any) -> dict[str, Any]:
    return {"kv_connector": "EldrConnector", "kv_role": role, "kv_connector_extra_config": settings}


def both(role: str, **settings: Any) -> dict[str, Any]:
    """NIXL and the plugin beside it."""
    return {
        "kv_connector": "MultiConnector",
        "kv_role": role,
        "kv_connector_extra_config": {"connectors": [nixl(role), eldr(role, **settings)]},
    }


def vllm(name: str, folder: Path, transfer: dict[str, Any] | None, *flags: str, **environment: str) -> Server:
    port = free_port()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
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


def gateway(folder: Path, prefill: list[Server], decode: list[Server], *flags: str, name: str = "gateway") -> Server:
    port = free_port()
    command = ["node", str(ROOT / "dist" / "cli" / "main.js"), "serve", "--port", str(port), *flags]
    for kind, servers in (("--prefill", prefill), ("--decode", decode)):
        for server in servers:
            command += [kind, server.url]
    return Server(name, command, port, dict(os.environ), folder, "/ready")


@contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    """They start side by side; all are stopped, also when one does not come up."""
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        for server in servers:
            server.wait_until_ready()
        yield servers
