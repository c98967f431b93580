"""OpenAI's client for Python against a gateway. Usage: openai_client.py URL KEY. Prints one line of JSON for each case: its name and what it saw."""

import asyncio
import json
import sys

import openai

url, key = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30)
chat = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
long_chat = {**chat, "max_tokens": 100_000, "stream": True}


def say(case: str, **seen: object) -> None:
    print(json.dumps({"case": case, **seen}), flush=True)


def error_of(call) -> dict:
    try:
        call()
    except openai.APIError as error:
        return {"kind": type(error).__name__, "code": error.code, "status": getattr(error, "status_code", None)}
    return {"kind": None}


whole = client.chat.completions.create(**chat)
say("whole", tokens=whole.usage.completion_tokens, reason=whole.choices[0].finish_reason, text=whole.choices[0].message.content)

chunks = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
say("stream", tokens=chunks[-1].usage.completion_tokens, text=text)

several = client.completions.create(model="fake", prompt=["a", "b"], n=2, max_tokens=3)
say("several", indices=[choice.index for choice in several.choices], tokens=several.usage.completion_tokens)

raw = client.chat.completions.with_raw_response.create(**chat, extra_headers={"x-request-id": "mine-1"})
say("request id", id=raw.headers.get("x-request-id"), parsed=raw.parse().id)

say("models", ids=[model.id for model in client.models.list()])

wrong_key = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
say("wrong key", **error_of(lambda: wrong_key.chat.completions.create(**chat)))
say("bad request", **error_of(lambda: client.chat.completions.create(**{**chat, "n": 0})))
say("unknown model", **error_of(lambda: client.chat.completions.create(**{**chat, "model": "none"})))
say("not served", **error_of(lambda: client.embeddings.create(model="fake", input="a")))

stream = client.chat.completions.create(**long_chat)
seen = sum(1 for _, _chunk in zip(range(3), stream))
stream.close()
say("closed during a stream", chunks=seen)


async def cancelled() -> int:
    """Several streams whose tasks are cancelled at different moments."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as asynchronous:

        async def read() -> None:
            async for _ in await asynchronous.chat.completions.create(**long_chat):
                pass

        tasks = [asyncio.create_task(read()) for _ in range(20)]
        for task in tasks:
            await asyncio.sleep(0.02)
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(end, asyncio.CancelledError) for end in ends)


say("cancelled", tasks=asyncio.run(cancelled()))
