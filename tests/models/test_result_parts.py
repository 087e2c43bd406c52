"""Images, audio and files in results: in each API either as media, in the result or after it, or named in text; never left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from callgate.content_parts import Audio, Image, Part, Resource, Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames

PICTURE = Image(data="UElDVFVSRQ==", mime_type="image/png")
SOUND = Audio(data="U09VTkQ=", mime_type="audio/wav")
PDF = Resource(resource={"uri": "file:///a%20report.pdf", "mimeType": "application/pdf", "blob": "UERG"})
ARCHIVE = Resource(resource={"uri": "file:///a.zip", "mimeType": "application/zip", "blob": "WklQ"})
DATA = {"picture": "UElDVFVSRQ==", "sound": "U09VTkQ=", "pdf": "UERG"}

APIS = [
    "openai.chat",
    "openai.responses",
    "anthropic.messages",
    "gemini.generate",
    "gemini.interactions",
    "bedrock.converse",
    "ollama.chat",
    "cohere.chat",
]
SENT = {
    "openai.chat": {"picture", "sound"},
    "openai.responses": {"picture", "pdf"},
    "anthropic.messages": {"picture", "pdf"},
    "gemini.generate": {"picture", "sound", "pdf"},
    "gemini.interactions": {"picture", "sound", "pdf"},
    "bedrock.converse": {"picture", "pdf"},
    "ollama.chat": {"picture"},
    "cohere.chat": {"picture"},
}
"""What each API takes as media."""


def body(api: str, content: tuple[Part, ...], *, is_error: bool = False, model: str = "m", quirks: Mapping[str, object] = {}) -> Any:
    talk: list[Message] = [
        UserMessage("Look."),
        AssistantMessage(parts=(ToolCall(id="c1", name="look", arguments="{}"),), api=api),
        ToolMessage(call_id="c1", name="look", content=content, is_error=is_error),
    ]
    return json.loads(codec(api).encode(ModelRequest(model=model, messages=tuple(talk)), WireNames(), quirks).body)


@pytest.mark.parametrize("is_error", [False, True], ids=["ok", "failed"])
@pytest.mark.parametrize("api", APIS)
def test_each_part_of_a_result_is_sent_as_media_or_named(api: str, is_error: bool) -> None:
    sent = json.dumps(body(api, (Text(text="see"), PICTURE, SOUND, PDF, ARCHIVE), is_error=is_error))
    named = {"picture": "[image/png]", "sound": "[audio/wav]", "pdf": "[resource file:///a%20report.pdf, application/pdf, 3 bytes]"}
    for part, data in DATA.items():
        assert (data in sent) != (named[part] in sent), part
    assert "picture" in {part for part, data in DATA.items() if data in sent}
    assert "[resource file:///a.zip, application/zip, 3 bytes]" in sent
    assert "WklQ" not in sent
    if not is_error:
        assert {part for part, data in DATA.items() if data in sent} == SENT[api]


@pytest.mark.parametrize("is_error", [False, True], ids=["ok", "failed"])
@pytest.mark.parametrize("api", ["openai.chat", "openai.responses", "anthropic.messages", "bedrock.converse", "cohere.chat"])
@pytest.mark.parametrize("kind", ["bmp", "tiff", "heic", "avif", "svg+xml"])
def test_an_image_of_a_type_that_the_provider_refuses_is_named_with_its_size_and_the_reason(api: str, kind: str, is_error: bool) -> None:
    """The provider would refuse the whole request."""
    sent = json.dumps(body(api, (Text(text="see"), Image(data="UElDVFVSRQ==", mime_type=f"image/{kind}")), is_error=is_error))
    assert "UElDVFVSRQ" not in sent
    assert f"[An image of type image/{kind} with 7 bytes was left out: the provider takes images as PNG, JPEG, GIF or WebP only.]" in sent


@pytest.mark.parametrize("api", ["openai.chat", "openai.responses", "anthropic.messages", "bedrock.converse", "cohere.chat"])
def test_an_image_under_another_name_of_its_type_is_sent(api: str) -> None:
    sent = json.dumps(body(api, (Image(data="UElDVFVSRQ==", mime_type="image/JPG"),)))
    assert "UElDVFVSRQ==" in sent
    assert "jpeg" in sent


def test_openais_own_chat_api_gets_a_pdf_as_a_file_after_the_results() -> None:
    sent = body("openai.chat", (PDF,), quirks={"server": "openai.com"})["messages"]
    assert sent[-1]["content"] == [
        {"type": "text", "text": "Files from the results above:"},
        {"type": "file", "file": {"filename": "a report.pdf", "file_data": "data:application/pdf;base64,UERG"}},
    ]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_gemini_gets_audio_after_the_results_and_documents_where_its_generation_takes_them(model: str) -> None:
    contents = body("gemini.generate", (SOUND, PDF), model=model)["contents"]
    sound, pdf = (
        {"inlineData": {"mimeType": mime, "data": data}} for mime, data in (("audio/wav", "U09VTkQ="), ("application/pdf", "UERG"))
    )
    inside = contents[2]["parts"][0]["functionResponse"].get("parts")
    after = [{"text": "Files from the results above:"}, sound]
    assert (inside, contents[3]["parts"]) == (([pdf], after) if "3" in model.split("-")[1] else (None, [*after, pdf]))
