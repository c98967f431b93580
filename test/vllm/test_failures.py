"""Whatever breaks in the plugin, requests are still served with the same tokens. Capture is then permanently off, logged once, and
every later hand-off contains the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import SMALL, Result, Run, check, run_engines
from oracle import experts_of, prompts
from servers import eldr, running, vllm
from test_counts import asked
from test_counts import check as check_sent

EXPERTS, HALF_LIFE = 64, 64
SETTINGS = {"half_life": HALF_LIFE}
# One by one and several at once; before the failure, in its step, and after it.
BATCHES = [[prompts()[0]], [prompts()[3]], list(prompts()[1:7]), [prompts()[4]], list(prompts()[1:4])]
# Number of calls before it fails, so that the first requests still get their counts.
FAILURES = {
    "store.scatter": 20,
    "store.sums": 3,
    "store.rows": 30,
    "scheduler.follow": 4,
    "scheduler.found_locally": 3,
    "scheduler.admitted": 3,
    "scheduler.step": 20,
    "scheduler.finished": 2,
    "scheduler.received": 20,
}
# A foreign package that breaks the plugin from the fifth step on: vLLM loads it in every process of a server.
FAULT = """
def register():
    from eldr_vllm.torch_store import TorchStore
    scatter, steps = TorchStore.scatter, iter(range(4))
    def failing(self, *arguments):
        if next(steps, None) is None:
            raise ArithmeticError("injected")
        scatter(self, *arguments)
    TorchStore.scatter = failing
"""
WHOLE, MONOLITHIC = "nothing fails", "routes by itself"


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Result]:
    runs = {name: Run(BATCHES, settings=SETTINGS, arguments=SMALL, changes={name: after}) for name, after in FAILURES.items()}
    runs[WHOLE] = Run(BATCHES, settings=SETTINGS, arguments=SMALL)
    runs[MONOLITHIC] = Run(BATCHES, settings=SETTINGS, arguments=SMALL, changes={MONOLITHIC: 0})
    return run_engines(folder, "failures", runs)


@pytest.mark.parametrize("name", [*FAILURES, MONOLITHIC])
def test_tokens_are_those_of_an_engine_in_which_nothing_fails(results: dict[str, Result], name: str) -> None:
    assert [answer.tokens for answer in results[name].answers] == [answer.tokens for answer in results[WHOLE].answers]


@pytest.mark.parametrize("name", list(FAILURES))
def test_capture_is_off_for_good_and_hand_offs_say_why(results: dict[str, Result], name: str) -> None:
    result = results[name]
    assert result.log.count("capture is off from now on, requests are served without counts:") == 1
    off = ["off" in answer.sent for answer in result.answers]
    assert not off[0]
    for answer in result.answers:
        if "off" in answer.sent:
            assert "Injected" in answer.sent["off"]
            assert list(answer.sent) == ["off"]
        else:
            check(answer, experts_of, EXPERTS, HALF_LIFE)
    last = [answer for batch in result.batches[-2:] for answer in batch]
    assert all("off" in answer.sent for answer in last)


def test_choices_of_a_kernel_that_routes_by_itself_are_made_again(results: dict[str, Result]) -> None:
    result = results[MONOLITHIC]
    assert result.log.count("the MoE kernel does not report its choice: routers choose again from the same logits") == 1
    for answer in result.answers:
        check(answer, experts_of, EXPERTS, HALF_LIFE)


def test_a_server_continues_to_serve(folder: Path) -> None:
    (folder / "fault" / "fault-1.dist-info").mkdir(parents=True)
    (folder / "fault" / "fault.py").write_text(FAULT)
    (folder / "fault" / "fault-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fault\nVersion: 1\n")
    (folder / "fault" / "fault-1.dist-info" / "entry_points.txt").write_text("[vllm.general_plugins]\nfault = fault:register\n")
    with running(vllm("failing", folder, eldr("kv_producer"), PYTHONPATH=str(folder / "fault"))) as (server,):
        for prompt in prompts()[:4]:
            check_sent(asked(server, prompt), prompt, {})
        reasons = [asked(server, prompt) for prompt in prompts()[4:8]]
        assert reasons == [{"off": "storing a step's experts failed: ArithmeticError: injected"}] * 4
        text = server.log.read_text()
        assert text.count("eldr: capture is off from now on, requests are served without counts:") == 1
        assert text.count("eldr: hand-offs carry no counts from now on:") == 1
