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
