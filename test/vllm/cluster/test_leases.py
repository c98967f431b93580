"""Blocks that are read too late or never: prefill frees them, and no client gets a wrong text."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

from oracle import prompts
from servers import LEASE_SECONDS, running, until

from cluster.cluster import Cluster, body, greedy
from cluster.door import Door
from cluster.stream import Stream

# Long enough to act between the first attempt and the retry; the actual delay is between half and all of it.
PAUSED = {"retries": {"backoffMs": 2000}}


def test_a_client_that_leaves_between_the_legs(cluster: Cluster) -> None:
    """The first worker cannot be reached, and the client leaves before the retry: no decode worker received the hand-off."""
    cluster.until_idle()
    expired = cluster.expired()
    with (
        Door(cluster.decode[0].url) as door,
        running(cluster.gateway("leaves", "--policy", "round_robin", decode=[door.url, cluster.decode[1].url], **PAUSED)) as (front,),
    ):
        door.shut()
        stream = Stream(front, body(list(prompts()[4]), max_tokens=300))
        until(lambda: sum(front.values("eldr_leg_failures_total", 'worker="d0"', 'leg="decode"')) == 1, "the first try fails")
        assert sum(cluster.prefill.values("vllm:kv_cache_usage_perc")) > 0
        stream.leave()
        until(lambda: sum(front.values("eldr_handoffs_released_total")) == 1, "the hand-off is given back")
        cluster.until_idle(front)
        assert sum(front.values("eldr_requests_total", 'outcome="client_gone"')) == 1
    # Freed by a release, not because the lease expired.
    assert cluster.expired() == expired


def test_clients_that_leave_during_a_stream(cluster: Cluster) -> None:
    cluster.until_idle()
    expired = cluster.expired()
    with running(cluster.gateway("leave-streams")) as (front,):
        some = prompts()[1:7]
        for prompt in some:
            stream = Stream(front, body(list(prompt), max_tokens=300)).begin()
            next(stream.events())
            stream.leave()
        cluster.until_idle(front)
        assert sum(front.values("eldr_requests_total", 'outcome="client_gone"')) == len(some)
    running_now = "vllm:num_requests_running"
    until(lambda: sum(sum(worker.values(running_now)) for worker in cluster.decode) == 0, "the decode workers end the requests")
    assert cluster.expired() == expired


def test_a_worker_that_comes_back_after_the_lease(cluster: Cluster) -> None:
    """It was suspended with a request, which another worker has served by then, after a second prefill."""
    cluster.until_idle()
    expired = cluster.expired()
    prompt = prompts()[6]
    text = greedy(cluster.alone, prompt)
    late = cluster.decode[1]
    with running(cluster.gateway("late", "--policy", "round_robin")) as (front,), ThreadPoolExecutor(2) as pool:
        late.signal_all(signal.SIGSTOP)
        try:
            answers = list(pool.map(lambda _: Stream(front, body(list(prompt))).begin().read(), range(2)))
            assert [(one.worker, one.text, one.done, one.error) for one in answers] == [("d0", text, True, None)] * 2
            until(lambda: cluster.expired() == expired + 1, "the lease ends", LEASE_SECONDS + 120)
            cluster.until_idle(front)
        finally:
            late.signal_all(signal.SIGCONT)
        ready = ('worker="d1"', 'state="ready"')
        until(lambda: front.values("eldr_worker_state", *ready) == [1], "the gateway takes the worker back")
        answers = [Stream(front, body(list(prompt))).begin().read() for _ in range(4)]
        assert {one.worker for one in answers} == {"d0", "d1"}
        assert {(one.text, one.done) for one in answers} == {(text, True)}
        cluster.until_idle(front)


def test_a_hand_off_that_has_become_too_old_is_not_used(cluster: Cluster) -> None:
    """The gateway's retry delay is longer than a hand-off is usable."""
    cluster.until_idle()
    prompt = prompts()[7]
    text = greedy(cluster.alone, prompt)
    short = {"lease": {"durationMs": 1000, "usableShare": 0.5}, **PAUSED}
    with (
        Door(cluster.decode[0].url) as door,
        running(cluster.gateway("old", "--policy", "round_robin", decode=[door.url, cluster.decode[1].url], **short)) as (front,),
    ):
        door.shut()
        stream = Stream(front, body(list(prompt))).begin().read()
        assert (stream.worker, stream.text, stream.done, stream.error) == ("d1", text, True, None)
        assert sum(front.values("eldr_leases_missed_total")) == 1
        assert sum(front.values("eldr_retries_total", 'cause="lease"')) == 1
        cluster.until_idle(front)
