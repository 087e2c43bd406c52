"""Images, audio and files in results: in each API either as media, in the result or after it, or named in text; never left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


def test_gemini_gets_an_image_that_a_result_may_not_hold_after_it() -> None:
    photo = Image(data="UElDVFVSRQ==", mime_type="image/heic")
    contents = body("gemini.generate", (PICTURE, photo), model="gemini-3-pro")["contents"]
    assert [part["inlineData"]["mimeType"] for part in contents[2]["parts"][0]["functionResponse"]["parts"]] == ["image/png"]
    assert contents[3]["parts"][1:] == [{"inlineData": {"mimeType": "image/heic", "data": photo.data}}]


def test_an_interaction_gets_an_image_of_a_type_that_gemini_refuses_as_text() -> None:
    assert "UElDVFVSRQ" in json.dumps(body("gemini.interactions", (Image(data="UElDVFVSRQ==", mime_type="image/bmp"),)))
    sent = json.dumps(body("gemini.interactions", (Image(data="UElDVFVSRQ==", mime_type="image/svg+xml"),)))
    assert "[An image of type image/svg+xml with 7 bytes was left out" in sent


@pytest.mark.parametrize(
    ("model", "is_sent"),
    [("gpt-5", False), ("openai/o4-mini", False), ("gpt-4o-audio-preview", True), ("gpt-audio-1.5", True), ("voxtral-small", True)],
)
def test_audio_of_a_result_is_named_for_the_models_of_openai_that_refuse_audio(model: str, is_sent: bool) -> None:
    sent = json.dumps(body("openai.chat", (SOUND,), model=model))
    assert (SOUND.data in sent, "[audio/wav]" in sent) == (is_sent, not is_sent)


def _jpeg(width: int, height: int) -> bytes:
    """The beginning of a JPEG, with a profile before its dimensions."""
    profile = b"\xff\xe1" + (66 + 2).to_bytes(2, "big") + bytes(66)
    return b"\xff\xd8" + profile + b"\xff\xc2\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes(12)


def _png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes(9)


def _gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + bytes(9)


def _webp(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + sides


def _lossy_webp(width: int, height: int) -> bytes:
    head = b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a"
    return head + width.to_bytes(2, "little") + height.to_bytes(2, "little") + bytes(9)


def _lossless_webp(width: int, height: int) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + (width - 1 | height - 1 << 14).to_bytes(4, "little") + bytes(9)


@pytest.mark.parametrize("is_error", [False, True], ids=["ok", "failed"])
@pytest.mark.parametrize("api", ["anthropic.messages", "bedrock.converse", "bedrock.invoke"])
@pytest.mark.parametrize("make", [_jpeg, _png, _gif, _webp, _lossy_webp, _lossless_webp])
def test_an_image_with_a_longer_side_than_anthropic_and_bedrock_take_is_named(
    api: str, make: Callable[[int, int], bytes], is_error: bool
) -> None:
    """A screenshot of a whole page is often longer, and would end the conversation: all later requests have it, too."""
    for width, height in ((900, 8_001), (8_001, 900)):
        sent = json.dumps(body(api, (Image.from_bytes(make(width, height)),), is_error=is_error))
        assert f"[An image with {width} x {height} pixels was left out: the provider takes at most 8000 pixels on each side." in sent
    fits = Image.from_bytes(make(8_000, 8_000))
    assert fits.data in json.dumps(body(api, (fits,), is_error=is_error))


@pytest.mark.parametrize("api", ["anthropic.messages", "bedrock.converse"])
def test_an_image_with_more_bytes_than_anthropic_and_bedrock_take_is_named(api: str) -> None:
    """They count its Base64, so that their limit is below `Limits.media_bytes`."""
    fits, large = (Image.from_bytes(_png(9, 9).ljust(size, b"\0")) for size in (3_932_160, 3_932_163))
    assert fits.data in json.dumps(body(api, (fits,)))
    sent = json.dumps(body(api, (large,)))
    assert "[An image with 3932163 bytes was left out: the provider takes at most 3932160 bytes." in sent
    assert large.data in json.dumps(body("openai.chat", (large,)))


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\xff\xd8\xff\xe1\x00\x00" * 9, b"GIF89a", b"RIFF0000WEBPVP8X"])
def test_an_image_whose_dimensions_are_not_found_is_sent(data: bytes) -> None:
    image = Image.from_bytes(data)
    assert image.data in json.dumps(body("anthropic.messages", (image,)))


@pytest.mark.parametrize("data", ["/9j/abc", "iVBORw0KGgo", "\n".join(["/9j/" + "A" * 73] * 5_000)])
def test_an_image_of_a_user_whose_base64_is_not_exact_is_sent_as_it_is(data: str) -> None:
    """Without padding, or with lines: some providers take it, and the others say what is wrong."""
    request = ModelRequest(model="m", messages=(UserMessage(content=(Image(data=data, mime_type="image/jpeg"),)),), max_tokens=9)
    sent = codec("anthropic.messages").encode(request, WireNames(), {})
    assert json.dumps(data) in json.dumps(json.loads(sent.body))
