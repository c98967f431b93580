"""The laboratory of a step: starts its servers, or takes over those that an earlier step left running."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from staging.paths import Stage

from . import mps
from .engines import DeviceName, Engine, command_of, environment_of
from .say import say
from .servers import Processes, Server, ServerFailed, free_ports, key_of, wait_ready

READY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Lab:
    stage: Stage
    device: DeviceName

    @property
    def is_dry(self) -> bool:
        return self.device == "cpu"

    @property
    def processes(self) -> Processes:
        return Processes(self.stage.run)

    def need_gpu(self) -> None:
        if self.device == "cuda" and not mps.sees_gpu():
            raise ServerFailed("no NVIDIA GPU: `nvidia-smi -L` lists none; `--device cpu` rehearses a step without one")

    def start(self, engines: Sequence[Engine], stop_others: bool = True) -> dict[str, Server]:
        """Servers by name, running but perhaps not ready. A running server of the same name is kept if it was
        started in the same way."""
        if self.device == "cuda" and engines:
            self.need_gpu()
            mps.start(self.stage)
        processes = self.processes
        wanted = {engine.name: engine for engine in engines}
        if stop_others:
            processes.stop([server for server in processes.all() if server.name not in wanted])
        out: dict[str, Server] = {}
        begin: list[Engine] = []
        for name, engine in wanted.items():
            found = processes.find(name)
            if found is not None and found.key == self._key(engine):
                out[name] = found
                continue
            if found is not None:
                processes.stop([found])
            begin.append(engine)
        ports = free_ports(2 * len(begin))
        for index, engine in enumerate(begin):
            port, nixl_port = ports[2 * index : 2 * index + 2]
            command = command_of(engine, self.stage, self.device, port)
            out[engine.name] = processes.launch(engine.name, command, port, environment_of(engine, self.stage, self.device, nixl_port))
        if begin:
            say("starting", ", ".join(engine.name for engine in begin))
        return out

    def ready(
        self, engines: Sequence[Engine], stop_others: bool = True, must: bool = True, seconds: float = READY_SECONDS
    ) -> dict[str, Server]:
        """Servers by name, ready. Without `must`, those that failed are left out."""
        servers = self.start(engines, stop_others)
        took = wait_ready(list(servers.values()), seconds, must=must)
        say("ready:", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()))
        return {name: server for name, server in servers.items() if name in took}

    def _key(self, engine: Engine) -> str:
        return key_of(command_of(engine, self.stage, self.device, 0), environment_of(engine, self.stage, self.device, 0))

    @contextmanager
    def gateway(self, name: str, prefill: Sequence[Server], decode: Sequence[Server], *flags: str) -> Iterator[Server]:
        """The built project's gateway in front of the servers, for the duration of a run."""
        run = self.stage.run
        workers = {
            kind: [{"url": server.url, "id": f"{kind[0]}{index}"} for index, server in enumerate(servers)]
            for kind, servers in (("prefill", prefill), ("decode", decode))
        }
        run.mkdir(parents=True, exist_ok=True)
        file = run / f"{name}.config.json"
        file.write_text(json.dumps({"workers": workers}))
        (port,) = free_ports(1)
        command = [*self.stage.eldr, "serve", "--port", str(port), "--config", str(file), "--log-level", "warn", *flags]
        server = self.processes.launch(name, command, port, dict(os.environ))
        try:
            wait_ready([server], 60, "/ready")
            yield server
        finally:
            self.processes.stop([server], 3)

    def eldr(self, *arguments: str, timeout_s: float = 300) -> Any:
        """Runs a command of the project with --json and returns what it prints."""
        done = subprocess.run(
            [*self.stage.eldr, *arguments, "--json", "--quiet"], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode != 0:
            raise ServerFailed(f"eldr {arguments[0]} ended with {done.returncode}: {done.stderr[-1500:] or done.stdout[-1500:]}")
        return json.loads(done.stdout)
