"""Bodies of an OpenAPI document that carry files, against a real HTTP server."""

from __future__ import annotations

from base64 import b64encode
from email import message_from_bytes
from email.message import Message
from typing import Any

import pytest

from callgate import Engine, RawCall
from callgate.integrations.openapi import openapi_tools
from tests.engine_calls import result_of
from tests.integrations.http_api import HttpApi, Received, json_answer
from tests.integrations.shop_document import operation

_PNG = b"\x89PNG\r\n--\r\n\x00"
_FORM = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "object"},
        "image": {"type": "string", "format": "binary"},
        "pages": {"type": "array", "items": {"type": "string", "contentMediaType": "application/pdf", "contentEncoding": "base64"}},
    },
}


def _document(media_type: str, schema: dict[str, Any], **media: Any) -> dict[str, Any]:
    return operation(method="post", requestBody={"content": {media_type: {"schema": schema, **media}}})


async def _sent(document: dict[str, Any], body: object) -> tuple[Any, list[Received]]:
    """Return the result of a call with this body, and the requests that arrived."""
    async with HttpApi(lambda _: json_answer("{}")) as api, Engine(openapi_tools(document, base_url=api.url)) as engine:
        return result_of(await engine.call(RawCall(name="ask", arguments={"body": body}))), api.received


def _parts(request: Received) -> list[Message]:
    """Return the parts of a multipart request, as Python's own parser reads them."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    return [part for part in message_from_bytes(head + request.body).walk() if not part.is_multipart()]


async def test_a_form_with_files_is_sent_as_multipart_and_the_files_are_given_as_base64() -> None:
    body = {
        "title": 'A "new" one',
        "tags": ["a", "b"],
        "size": {"width": 5},
        "image": b64encode(_PNG).decode(),
        "pages": [b64encode(b"one").decode(), b64encode(b"two").decode()],
    }
    document = _document("multipart/form-data", _FORM, encoding={"image": {"contentType": "image/png, image/jpeg"}})
    result, (request,) = await _sent(document, body)
    assert result.success, result.text
    found = [
        (part.get_param("name", header="content-disposition"), part.get_filename(), part.get_content_type(), part.get_payload(decode=True))
        for part in _parts(request)
    ]
    assert found == [
        ("title", None, "text/plain", b'A "new" one'),
        ("tags", None, "text/plain", b"a"),
        ("tags", None, "text/plain", b"b"),
        ("size", None, "application/json", b'{"width":5}'),
        ("image", "image", "image/png", _PNG),
        ("pages", "pages", "application/octet-stream", b"one"),
        ("pages", "pages", "application/octet-stream", b"two"),
    ]


async def test_a_field_whose_name_would_end_its_header_stays_one_field() -> None:
    result, (request,) = await _sent(_document("multipart/form-data", {"type": "object"}), {'a"\r\nX-Evil: 1': "text"})
    assert result.success, result.text
    (part,) = _parts(request)
    assert part.keys() == ["Content-Disposition"]
    assert part.get_payload() == "text"


@pytest.mark.parametrize("media_type", ["application/octet-stream", "image/png"])
async def test_a_body_of_bytes_is_given_as_base64(media_type: str) -> None:
    result, (request,) = await _sent(_document(media_type, {"type": "string", "format": "binary"}), b64encode(_PNG).decode())
    assert result.success, result.text
    assert request.headers["content-type"] == media_type
    assert request.body == _PNG


@pytest.mark.parametrize(
    ("media_type", "body", "place"),
    [
        ("multipart/form-data", {"image": "my picture"}, "body.image"),
        ("multipart/form-data", {"pages": ["b25l", "a page"]}, "body.pages"),
        ("image/png", "my picture", "body"),
    ],
    ids=["a file", "one of several", "the whole body"],
)
async def test_a_file_that_is_no_base64_is_refused_with_its_place_and_nothing_is_sent(media_type: str, body: object, place: str) -> None:
    schema = _FORM if media_type.startswith("multipart") else {"type": "string"}
    result, received = await _sent(_document(media_type, schema), body)
    assert f"{place} is a file; give its bytes as base64." in str(result.error)
    assert not received


def test_the_model_is_told_which_arguments_are_base64() -> None:
    (form,) = openapi_tools(_document("multipart/form-data", _FORM), base_url="https://shop.example")
    (whole,) = openapi_tools(_document("image/png", {}), base_url="https://shop.example")
    assert form.parameters is not None
    assert whole.parameters is not None
    assert form.parameters["properties"]["body"]["description"] == "Files as base64: image, pages."
    assert whole.parameters["properties"]["body"] == {"type": "string", "description": "The bytes as base64."}


def test_properties_that_are_read_only_through_their_own_all_of_are_no_arguments() -> None:
    schema = {
        "type": "object",
        "required": ["id", "kind"],
        "properties": {"id": {"allOf": [{"type": "integer"}, {"readOnly": True}]}, "at": {"allOf": [{"$ref": "#/x"}]}, "kind": {}},
    }
    document = _document("application/json", schema) | {"x": {"allOf": [{"$ref": "#/x"}, {"readOnly": True}]}}
    (tool,) = openapi_tools(document, base_url="https://shop.example")
    assert tool.parameters is not None
    body = tool.parameters["properties"]["body"]
    assert list(body["properties"]) == ["kind"]
    assert body["required"] == ["kind"]
