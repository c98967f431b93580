"""Servers are found again by name and by how they were started, and stopped with all their processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab.engines import NARROW, Engine, both, command_of, environment_of, flags_of
from lab.servers import Processes, ServerFailed, free_ports, key_of, total, wait_ready
from staging.paths import Stage

SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'# a comment\\nsteps_total{engine="0"} 3\\nsteps_total{engine="1"} 4.5\\nsteps_total_more 9\\n'
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_is_found_again_and_stopped(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    first = Processes(tmp_path)
    first.launch("one", [sys.executable, "-c", SERVE, str(port)], port, {})
    again = Processes(tmp_path).find("one")
    assert again is not None
    assert "one" in wait_ready([again], 30)
    values = again.metrics()
    assert (total(values, "steps_total"), total(values, "steps_total", 'engine="1"')) == (7.5, 4.5)
    assert [server.name for server in first.all()] == ["one"]
    first.stop([again])
    assert first.find("one") is None
    assert first.all() == []


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    server = Processes(tmp_path).launch("bad", [sys.executable, "-c", "raise SystemExit('no GPU here')"], 1, {})
    with pytest.raises(ServerFailed, match="no GPU here"):
        wait_ready([server], 30)
    assert wait_ready([server], 5, must=False) == {}


def test_ports_do_not_matter_for_recognition_but_settings_do() -> None:
    assert key_of(["vllm", "--port", "1", "x"], {"VLLM_A": "1", "HOME": "a"}) == key_of(["vllm", "--port", "2", "x"], {"VLLM_A": "1"})
    assert key_of(["vllm", "--port", "1", "x"], {"VLLM_A": "1"}) != key_of(["vllm", "--port", "1", "x"], {"VLLM_A": "2"})
    assert key_of(["vllm", "--port", "1", "x"], {}) != key_of(["vllm", "--port", "1", "y"], {})


def test_the_environment_of_a_command_does_not_matter_for_recognition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, stage = Engine("p", transfer=both("kv_producer")), Stage(tmp_path)
    before = key_of(command_of(engine, stage, "cpu", 1), environment_of(engine, stage, "cpu", 2))
    for name in ("OUT", "ELDR_COMMIT", "ELDR_STAGE"):
        monkeypatch.setenv(name, "x")
    assert key_of(command_of(engine, stage, "cpu", 3), environment_of(engine, stage, "cpu", 4)) == before


def test_flags_of_a_gpu_and_of_a_dry_run() -> None:
    engine = Engine("d0", graph_sizes=(1, 2), returns_experts=True, prefix_caching=False)
    on_gpu, on_cpu = flags_of(engine, "cuda"), flags_of(engine, "cpu")
    assert {"--kv-cache-memory-bytes", "--compilation-config", "--enable-return-routed-experts", "wide"} <= set(on_gpu)
    assert {"--enforce-eager", "float32", "wide"} <= set(on_cpu)
    assert not {"--kv-cache-memory-bytes", "--compilation-config", "--enable-return-routed-experts"} & set(on_cpu)
    assert "--load-format" not in flags_of(Engine("p", overrides=NARROW), "cuda")
    assert "dummy" in flags_of(Engine("q", model="qwen3-30b-a3b"), "cuda")
