"""Decode bodies with the providers' own client libraries, as an independent check of calls and text.

Each function takes the body of an HTTP response and returns calls as `(id, name, arguments)`, with the id `None` if the library has none.
The libraries take seconds to import: what collects the tests does without them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2

from callgate.models.model_events import Finished
from callgate.models.wire import codec

if TYPE_CHECKING:
    import openai

__all__ = ["PEERS", "Told", "ours", "same_told"]

Call = tuple[str | None, str, object]
Told = tuple[list[Call], str]

_HOST = "http://peer.invalid"


def _answering(body: bytes, *, streamed: bool) -> httpx2.Client:
    headers = {"content-type": "text/event-stream" if streamed else "application/json"}
    return httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, content=body, headers=headers)))


def _openai(body: bytes, *, streamed: bool) -> openai.OpenAI:
    import openai

    return openai.OpenAI(api_key="x", base_url=_HOST, max_retries=0, http_client=_answering(body, streamed=streamed))


def chat(body: bytes, *, streamed: bool) -> Told:
    """Decode chat completions; the library joins the pieces of a stream itself."""
    with _openai(body, streamed=streamed) as client:
        create = client.chat.completions
        if streamed:
            with create.stream(model="m", messages=[]) as stream:
                answer: Any = stream.get_final_completion()
        else:
            answer = create.create(model="m", messages=[])
    message = answer.choices[0].message
    calls: list[Call] = [
        (call.id, call.custom.name, call.custom.input) if call.type == "custom" else (call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    ]
    if message.function_call:
        calls.append((None, message.function_call.name, message.function_call.arguments))
    return calls, (message.content or "") + (message.refusal or "")


def responses(body: bytes, *, streamed: bool) -> Told:
    with _openai(body, streamed=streamed) as client:
        if streamed:
            with client.responses.stream(model="m", input="?") as stream:
                done = [event.item for event in stream if event.type == "response.output_item.done"]
                output: list[Any] = list(done)
        else:
            output = list(client.responses.create(model="m", input="?").output)
    calls: list[Call] = [(item.call_id, item.name, item.arguments) for item in output if item.type == "function_call"]
    calls += [(item.call_id, item.name, item.input) for item in output if item.type == "custom_tool_call"]
    parts = [part for item in output if item.type == "message" for part in item.content]
    return calls, "".join(part.text if part.type == "output_text" else part.refusal for part in parts)


def messages(body: bytes, *, streamed: bool) -> Told:
    import anthropic

    with anthropic.Anthropic(api_key="x", base_url=_HOST, max_retries=0, http_client=_answering(body, streamed=streamed)) as client:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}
        if streamed:
            with client.messages.stream(**asked) as stream:
                content: list[Any] = list(stream.get_final_message().content)
        else:
            content = client.messages.create(**asked).content
    calls: list[Call] = [(block.id, block.name, block.input) for block in content if block.type == "tool_use"]
    return calls, "".join(block.text for block in content if block.type == "text")


def generate(body: bytes, *, streamed: bool) -> Told:
    from google import genai

    options = genai.types.HttpOptions(base_url=_HOST, httpx_client=_answering(body, streamed=streamed))
    models = genai.Client(api_key="x", http_options=options).models
    if streamed:
        answers = list(models.generate_content_stream(model="m", contents="?"))
    else:
        answers = [models.generate_content(model="m", contents="?")]
    candidates = [answer.candidates[0] for answer in answers if answer.candidates]
    parts = [part for candidate in candidates if candidate.content for part in candidate.content.parts or ()]
    if any(part.function_call and (part.function_call.partial_args or part.function_call.will_continue) for part in parts):
        raise NotImplementedError("the library leaves it to its user to put streamed arguments together")
    called = [part.function_call for part in parts if part.function_call]
    calls: list[Call] = [(call.id, call.name or "", call.args or {}) for call in called]
    return calls, "".join(part.text for part in parts if part.text and not part.thought)


PEERS: Mapping[str, Callable[..., Told]] = {
    "openai.chat": chat,
    "openai.responses": responses,
    "anthropic.messages": messages,
    "gemini.generate": generate,
}


def ours(api: str, body: bytes, *, streamed: bool) -> Told:
    """Decode the body with callgate's decoder, in pieces of seven bytes."""
    decoder = codec(api).decoder(streamed=streamed)
    events = [event for at in range(0, len(body), 7) for event in decoder.feed(body[at : at + 7])] + decoder.close()
    end = events[-1]
    assert isinstance(end, Finished)
    return [(None if call.made_id else call.id, call.name, call.arguments) for call in end.message.calls], end.message.text


def same_told(one: Told, other: Told) -> bool:
    """Return whether both have the same text and calls, by id, name and JSON arguments, in any order."""
    return sorted(map(_comparable, one[0]), key=str) == sorted(map(_comparable, other[0]), key=str) and one[1] == other[1]


def _comparable(call: Call) -> tuple[str, str, object]:
    call_id, name, arguments = call
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments) if arguments.strip() else {}
    return call_id or "", name, arguments
