from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import servers
import summary

# vLLM's CPU build chooses its kernels by these.
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")


def pytest_report_header() -> str:
    """A failure on one processor only is then easier to explain."""
    lines = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    flags = fields.get("flags", "").split()
    has, lacks = ([name for name in CPU_FEATURES if (name in flags) == found] for found in (True, False))
    return f"processor: {fields.get('model name', 'unknown')}, with {', '.join(has)}, without {', '.join(lacks)}"


def pytest_configure() -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"signal {number}")

    # Like Ctrl-C, so that started processes are stopped.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"end of the log of {server.name}", server.tail()) for server in servers.ALIVE]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, lines in summary.TABLES.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")
