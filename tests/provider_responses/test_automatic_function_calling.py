"""Calls that Google's SDK runs itself, because a request has functions: the host is told that the engine had no part in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import Engine, Scope, UsageError
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import SDK_WARNINGS
from tests.provider_responses.shop import paid
from tests.provider_responses.shop import refund as refund_tool

pytestmark = SDK_WARNINGS
HI: list[Any] = [{"role": "user", "parts": [{"text": "Refund A7."}]}]


def refund(order: str) -> str:
    """Refund an order."""
    paid.append(f"{order} by the SDK")
    return "refunded"


def answer(part: dict[str, Any], number: int) -> dict[str, Any]:
    candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}
    return {"responseId": f"r-{number}", "modelVersion": "gemini-3-pro", "candidates": [candidate]}


ANSWERS = [answer({"functionCall": {"name": "refund", "args": {"order": "A7"}}}, 1), answer({"text": "Done."}, 2)]


def models(url: str) -> Any:
    from google import genai

    return genai.Client(api_key="x", http_options=genai.types.HttpOptions(base_url=url)).aio.models


async def test_a_response_after_calls_that_the_sdk_has_run_is_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with RecordedServer(*[("application/json", [json.dumps(one).encode()]) for one in ANSWERS]) as server:
        response = await models(server.url).generate_content(model="m", contents=HI, config={"tools": [refund]})
    async with Engine([refund_tool]) as engine:
        for given in (response, response.model_dump()):
            caplog.clear()
            assert (await engine.respond(given)).text == "Done."
            (said,) = [one.getMessage() for one in caplog.records if one.name == "callgate"]
            assert "google-genai has run calls of the model itself" in said
            assert "engine.schemas('gemini')" in said
    assert paid == ["A7 by the SDK"]


async def test_the_calls_of_a_stream_that_the_sdk_has_run_do_not_run_again() -> None:
    with RecordedServer(*[("text/event-stream", [b"data: " + json.dumps(one).encode() + b"\n\n"]) for one in ANSWERS]) as server:
        stream = await models(server.url).generate_content_stream(model="m", contents=HI, config={"tools": [refund]})
        async with Engine([refund_tool]) as engine, engine.watch(stream) as chunks:
            with pytest.raises(UsageError, match="google-genai has run calls of the model itself"):
                await chunks.reply()
    assert paid == ["A7 by the SDK"]


async def test_a_response_to_a_request_with_schemas_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with RecordedServer(("application/json", [json.dumps(ANSWERS[0]).encode()])) as server:
        async with Engine([refund_tool]) as engine:
            config: Any = {"tools": engine.schemas("gemini")}
            response = await models(server.url).generate_content(model="m", contents=HI, config=config)
            await engine.respond(response, Scope(run="r"))
    assert [one for one in caplog.records if one.name == "callgate"] == []
    assert paid == ["A7"]
