"""OpenAI's client for Python against a worker. Usage: openai_worker.py URL. Prints one line of JSON for each case: its name and what it saw."""

import asyncio
import json
import sys

import openai

(url,) = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)
model = client.models.list().data[0].id
chat = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


def say(case: str, **seen: object) -> None:
    print(json.dumps({"case": case, **seen}), flush=True)


def error_of(call) -> dict:
    try:
        call()
    except openai.APIError as error:
        return {"kind": type(error).__name__, "type": error.type, "param": error.param, "status": getattr(error, "status_code", None)}
    return {"kind": None}


whole = client.chat.completions.create(**chat)
say("whole", tokens=whole.usage.completion_tokens, reason=whole.choices[0].finish_reason, text=whole.choices[0].message.content)

chunks = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
say("stream", tokens=chunks[-1].usage.completion_tokens, text=text)

completion = client.completions.create(model=model, prompt=[1, 2, 3], max_tokens=3, extra_body={"eldr_row": 2, "return_token_ids": True})
say("completion", ids=len(completion.choices[0].model_extra["token_ids"]), prompt=completion.choices[0].model_extra["prompt_token_ids"])

raw = client.chat.completions.with_raw_response.create(**chat, extra_headers={"x-request-id": "mine-1"})
say("request id", id=raw.headers.get("x-request-id"), parsed=raw.parse().id)

say("bad request", **error_of(lambda: client.chat.completions.create(**{**chat, "n": 2})))
say("too long", **error_of(lambda: client.chat.completions.create(**{**chat, "max_tokens": 10**9})))
say("unknown model", **error_of(lambda: client.chat.completions.create(**{**chat, "model": "none"})))

stream = client.chat.completions.create(**{**chat, "max_tokens": 5_000, "stream": True})
seen = sum(1 for _, _chunk in zip(range(3), stream))
stream.close()
say("closed during a stream", chunks=seen)


async def several() -> list[str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asynchronous:
        answers = await asyncio.gather(*(asynchronous.chat.completions.create(**chat) for _ in range(20)))
        return [answer.choices[0].message.content for answer in answers]


say("several at once", same=set(asyncio.run(several())) == {whole.choices[0].message.content})
