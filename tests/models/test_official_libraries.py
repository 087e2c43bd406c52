"""callgate's decoders and the providers' own libraries read the same bytes with the same result."""

from __future__ import annotations

import json

import pytest

from tests.models import (
    responses_api as responses,
)
from tests.models import (
    test_anthropic_messages,
    test_gemini_generate,
    test_openai_chat,
)
from tests.models.official_clients import PEERS, ours, same_told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_CHAT = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
_TOOL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
BODIES = {
    "chat, streamed": ("openai.chat", test_openai_chat.USUAL, True),
    "chat, whole": (
        "openai.chat",
        json.dumps(
            {**_CHAT, "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [_TOOL]}}]}
        ).encode(),
        False,
    ),
    "responses, streamed": ("openai.responses", responses.USUAL, True),
    "responses, whole": ("openai.responses", json.dumps(responses.response(*responses.OUTPUT)).encode(), False),
    "messages, streamed": ("anthropic.messages", test_anthropic_messages.USUAL, True),
    "messages, whole": (
        "anthropic.messages",
        test_anthropic_messages.whole({"type": "text", "text": "Yes."}, {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1]}}),
        False,
    ),
    "generate, streamed": (
        "gemini.generate",
        test_gemini_generate.chunk({"text": "Hm.", "thought": True})
        + test_gemini_generate.chunk({"text": "Yes."}, test_gemini_generate.function("f", args={"x": [1]}, id="a"))
        + test_gemini_generate.chunk(test_gemini_generate.function("g", args={}), finish="STOP"),
        True,
    ),
    "generate, whole": (
        "gemini.generate",
        json.dumps(
            test_gemini_generate.answer({"text": "Yes."}, test_gemini_generate.function("f", args={"x": 1.5}), finish="STOP")
        ).encode(),
        False,
    ),
}


@pytest.mark.parametrize(("api", "body", "streamed"), BODIES.values(), ids=BODIES)
def test_our_decoder_and_the_providers_library_return_the_same_result(api: str, body: bytes, *, streamed: bool) -> None:
    """The library of each provider is an independent reference for its API."""
    theirs = PEERS[api](body, streamed=streamed)
    assert theirs[0]
    assert same_told(ours(api, body, streamed=streamed), theirs)
