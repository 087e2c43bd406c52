"""Provider-specific fields of a call are sent back to the server that sent them and to no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import ToolMessage
from tests.models.decoding import finished
from tests.models.http_requests import REQUEST, ask, at

SIGNED = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"},'
    b'"extra_content":{"google":{"thought_signature":"c2ln"}}}]},"finish_reason":"tool_calls"}]}\n\n'
)


@pytest.mark.parametrize(
    ("gave", "asked", "same"),
    [
        ("https://generativelanguage.googleapis.com/v1beta/openai", "https://europe-west1-aiplatform.googleapis.com/v1", True),
        ("https://openrouter.ai/api/v1", "https://api.openai.com/v1", False),
        ("http://10.0.0.7:8000/v1", "http://10.1.0.7:8000/v1", False),
        ("http://localhost:8000/v1", "http://localhost:8001/v1", False),
        ("http://localhost:8000/v1", "http://localhost:8000/v1", True),
        ("", "https://api.openai.com/v1", True),
    ],
)
async def test_provider_fields_of_a_call_are_sent_back_only_to_the_same_server(gave: str, asked: str, same: bool) -> None:
    """Gemini's thought signatures in OpenAI's format. A provider may have one host per region; a call without a recorded server is sent
    with its fields to any server.
    """
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(request.content)
        return httpx2.Response(200, content=signed(), headers={"content-type": "text/event-stream"})

    async def signed() -> AsyncIterator[bytes]:
        yield SIGNED

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        message = finished(await ask(at(gave or asked, client=client))).message
        if not gave:
            call = replace(message.calls[0], opaque={"extra_content": {"google": {"thought_signature": "c2ln"}}})
            message = replace(message, parts=(call,))
        result = ToolMessage(call_id="a", name="look", content=(Text(text="x"),))
        await ask(at(asked, client=client), replace(REQUEST, messages=(*REQUEST.messages, message, result)))
    assert (b'"extra_content":{"google":{"thought_signature":"c2ln"}}' in bodies[-1]) == (b"c2ln" in bodies[-1]) == same
