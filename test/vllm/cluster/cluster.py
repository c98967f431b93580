from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servers import LEASE_SECONDS, Server, both, eldr, gateway, until, vllm

# Of the artifacts: a fit uses recent counts if the trace has them and they are better.
HALF_LIFE = 64


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started = 0

    def __enter__(self) -> Self:
        self.prefill = vllm("prefill", self.folder, both("kv_producer", half_life=HALF_LIFE))
        self.decode = [vllm(f"decode{index}", self.folder, both("kv_consumer")) for index in range(2)]
        self.alone = vllm("alone", self.folder, eldr("kv_both", half_life=HALF_LIFE))
        try:
            for server in self.all():
                server.wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for server in self.all():
            server.stop()

    def all(self) -> list[Server]:
        return [self.prefill, *self.decode, self.alone]

    def revive(self, index: int) -> Server:
        """Restarts a killed decode worker at the same address."""
        port = int(self.decode[index].url.rsplit(":", 1)[1])
        self._started += 1
        self.decode[index] = vllm(f"decode{index}-again{self._started}", self.folder, both("kv_consumer"), port=port)
        return self.decode[index].wait_until_ready()

    def repair(self) -> None:
        for index, server in enumerate(self.decode):
            if server.process.poll() is not None:
                self.revive(index)

    def gateway(self, name: str, *flags: str, decode: list[str] | None = None, **settings: Any) -> Server:
        urls = [server.url for server in self.decode] if decode is None else decode
        return gateway(self.folder, [self.prefill.url], urls, *flags, name=f"gateway-{name}", **settings)

    def expired(self) -> float:
        return sum(self.prefill.values("vllm:nixl_num_kv_expired_reqs_total"))

    def until_idle(self, front: Server | None = None) -> None:
        """Waits until prefill holds no block and the gateway has no request in flight."""
        if front is not None:
            names = ("eldr_worker_inflight", "eldr_worker_inflight_tokens", "eldr_running_requests", "eldr_queue_length")
            until(lambda: sum(sum(front.values(name)) for name in names) == 0, "the gateway counts requests that have ended")
            assert sum(front.values("eldr_ticket_leaks_total")) == 0
        held = "the prefill worker still holds blocks"
        until(lambda: sum(self.prefill.values("vllm:kv_cache_usage_perc")) == 0, held, LEASE_SECONDS + 120)


def body(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True, **more}


def greedy(server: Server, prompt: tuple[int, ...] | str, **more: Any) -> str:
    given = prompt if isinstance(prompt, str) else list(prompt)
    return str(server.post("/v1/completions", body(given, **more))["choices"][0]["text"])
