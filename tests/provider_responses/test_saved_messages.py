"""What a host saves between two requests as JSON is what the SDK sends: signatures of thoughts and images included."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from callgate import Engine, Image, tool
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS

pytestmark = SDK_WARNINGS
QUESTION: list[Any] = [{"role": "user", "parts": [{"text": "Draw a lamp."}]}]
PNG = b"\x89PNG\r\n\x1a\n\xfb\xef\xff"
SIGNATURE = b"\xfb\xef\xff signature"


@tool(effect="none")
def draw(article: str) -> Image:
    """Draw an article."""
    return Image(data=base64.b64encode(PNG).decode(), mime_type="image/png")


def answer(*parts: dict[str, Any]) -> tuple[str, list[bytes]]:
    candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": list(parts)}}
    body = {"responseId": "r-1", "modelVersion": "gemini-3-pro", "candidates": [candidate]}
    return ("application/json", [json.dumps(body).encode()])


def found_in(value: Any, field: str) -> list[bytes]:
    """Return the decoded values of all fields with this name."""
    if isinstance(value, list):
        return [found for item in value for found in found_in(item, field)]
    if not isinstance(value, dict):
        return []
    own = [base64.urlsafe_b64decode(value[field].translate(str.maketrans("+/", "-_")))] if field in value else []
    return own + [found for item in value.values() for found in found_in(item, field)]


@pytest.mark.parametrize("kept", ["the object", "model_dump(mode='json')", "model_dump()"])
async def test_the_messages_for_gemini_can_be_saved_as_json_and_the_sdk_sends_the_same_bytes(kept: str) -> None:
    call = {"functionCall": {"name": "draw", "args": {"article": "lamp"}}, "thoughtSignature": base64.b64encode(SIGNATURE).decode()}
    with RecordedServer(answer(call), answer({"text": "Here it is."})) as server:
        async with Engine([draw]) as engine:
            tools = engine.schemas("gemini")
            response = await ASK["gemini"](server.url, QUESTION, tools)
            given = {
                "the object": response,
                "model_dump(mode='json')": response.model_dump(mode="json"),
                "model_dump()": response.model_dump(),
            }
            reply = await engine.respond(given[kept])
        saved = json.loads(json.dumps([*QUESTION, *reply.messages]))
        await ASK["gemini"](server.url, saved, tools)
    sent = server.requests[1]["contents"]
    assert found_in(sent, "thoughtSignature") == [SIGNATURE]
    assert found_in(sent, "data") == [PNG]
