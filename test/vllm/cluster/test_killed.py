"""A decode worker is killed with all its processes: during a stream, and before its first token."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

from oracle import prompts
from servers import Server, running, until

from cluster.cluster import Cluster, body, greedy
from cluster.stream import Stream

LONG = 1000


def served_by(front: Server, worker: str, prompt: tuple[int, ...], text: str) -> None:
    """Round robin selects it within two requests."""
    workers = set()
    for _ in range(2):
        stream = Stream(front, body(list(prompt))).begin().read()
        assert (stream.done, stream.error, stream.text) == (True, None, text)
        workers.add(stream.worker)
    assert worker in workers


def state_of(front: Server, worker: str, state: str) -> bool:
    return front.values("eldr_worker_state", f'worker="{worker}"', f'state="{state}"') == [1]


def test_during_a_stream_its_client_gets_an_error_and_the_others_continue(cluster: Cluster) -> None:
    prompt = prompts()[0]
    text = greedy(cluster.alone, prompt)
    long = greedy(cluster.alone, prompt, max_tokens=LONG)
    with running(cluster.gateway("killed", "--policy", "round_robin")) as (front,), ThreadPoolExecutor(2) as pool:
        # The first transfer to a worker starts with a handshake; this test needs concurrent streams.
        assert [greedy(front, prompt) for _ in range(2)] == [text] * 2
        other, doomed = (Stream(front, body(list(prompt), max_tokens=LONG)).begin() for _ in range(2))
        rest = pool.submit(other.read)
        for _ in zip(range(5), doomed.events(), strict=False):
            pass
        assert (doomed.error, doomed.done) == (None, False)
        index = int(doomed.worker.removeprefix("d"))
        cluster.decode[index].kill()
        doomed.read()
        assert doomed.error is not None
        assert (doomed.error["code"], doomed.done) == ("ELDR_STREAM_BROKEN", False)
        assert long.startswith(doomed.text)
        # While it is gone and the gateway does not know yet: retried elsewhere.
        assert [greedy(front, prompt) for _ in range(3)] == [text] * 3
        assert other.worker != doomed.worker
        assert (rest.result().text, other.done, other.error) == (long, True, None)
        assert sum(front.values("eldr_requests_total", 'outcome="broken"')) == 1
        cluster.until_idle(front)

        cluster.revive(index)
        until(lambda: state_of(front, doomed.worker, "ready"), "the gateway takes the worker back")
        served_by(front, doomed.worker, prompt, text)
        cluster.until_idle(front)


def test_before_its_first_token_the_request_is_retried_elsewhere(cluster: Cluster) -> None:
    prompt = prompts()[3]
    text = greedy(cluster.alone, prompt)
    with running(cluster.gateway("killed-early", "--policy", "round_robin")) as (front,), ThreadPoolExecutor(2) as pool:
        # A suspended worker has the request and cannot respond, so the kill certainly happens before the first token.
        cluster.decode[1].signal_all(signal.SIGSTOP)
        answers = [pool.submit(lambda: Stream(front, body(list(prompt))).begin().read()) for _ in range(2)]
        until(lambda: front.values("eldr_worker_inflight", 'worker="d1"') == [1], "the halted worker has a request")
        cluster.decode[1].kill()
        for stream in (answer.result() for answer in answers):
            assert (stream.status, stream.worker, stream.text, stream.done, stream.error) == (200, "d0", text, True, None)
        assert sum(front.values("eldr_retries_total", 'leg="decode"')) == 1
        assert front.values("eldr_requests_total", 'route="completions"', 'outcome="ok"') == [2]
        # The blocks that the killed worker did not read stay until their lease expires.
        cluster.until_idle(front)

        cluster.revive(1)
        until(lambda: state_of(front, "d1", "ready"), "the gateway takes the worker back")
        served_by(front, "d1", prompt, text)
        cluster.until_idle(front)
