"""OpenAI's own client for Python, through the gateway to real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from servers import ANSWER_SECONDS, running

from cluster.cluster import Cluster, greedy

PROMPT = "def add(a, b):\n    return"
CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0}
TEXT: dict[str, Any] = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def client(started: Cluster) -> Iterator[openai.OpenAI]:
    started.repair()
    with running(started.gateway("openai")) as (front,):
        yield openai.OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0, timeout=ANSWER_SECONDS)
        started.until_idle(front)
        assert sum(front.values("eldr_requests_total", 'outcome="failed"')) == 0


def test_completions(started: Cluster, client: openai.OpenAI) -> None:
    text = greedy(started.alone, PROMPT, max_tokens=12)
    whole = client.completions.create(**TEXT)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (text, "length")
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    events = list(client.completions.create(**TEXT, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].text for event in events if event.choices) == text
    assert events[-1].usage == whole.usage


def test_chats(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**CHAT)
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.content
    events = list(client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == whole.choices[0].message.content
    assert events[-1].usage is not None
    assert whole.usage is not None
    assert events[-1].usage.total_tokens == whole.usage.total_tokens


def test_several_choices_of_several_prompts(started: Cluster, client: openai.OpenAI) -> None:
    texts = [greedy(started.alone, prompt, max_tokens=12) for prompt in (PROMPT, "Once upon a time")]
    several = client.completions.create(**{**TEXT, "prompt": [PROMPT, "Once upon a time"], "n": 2})
    assert [(choice.index, choice.text) for choice in several.choices] == list(enumerate(text for text in texts for _ in range(2)))


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"model": "other"}, openai.NotFoundError, "other"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"prompt": "word " * 3000}, openai.BadRequestError, "1024"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_worker_refuses_is_an_error_of_the_client(
    client: openai.OpenAI, change: dict[str, Any], kind: type[openai.APIStatusError], said: str, stream: bool
) -> None:
    with pytest.raises(kind, match=said):
        client.completions.create(**{**TEXT, **change, "stream": stream})
