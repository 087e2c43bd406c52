"""Credentials that a service repeats in another form than the host gave them do not reach the model."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import httpx2
import pytest

from callgate import Engine, RawCall, RetryPolicy, ToolResult
from callgate.integrations.openapi import openapi_tools
from tests.engine_calls import result_of
from tests.integrations.http_api import Answer, HttpApi, Received
from tests.integrations.shop_document import operation

KEY = "kEy/9+z8 y7=="
SLASHES = json.dumps({"key": KEY}).replace("/", "\\/")


async def ask(answer: Callable[[Received], Answer], *, user: str = "", client: httpx2.AsyncClient | None = None) -> ToolResult:
    async with HttpApi(answer) as api:
        url = api.url.replace("://", f"://{user}@") if user else api.url
        tools = openapi_tools(operation(), base_url=url, query={"api_key": KEY}, client=client)
        tools[0].retry = RetryPolicy(base_s=0)
        async with Engine(tools) as engine:
            return result_of(await engine.call(RawCall(name="ask", arguments={})))


ECHOES: dict[str, Answer] = {
    "percent-encoded": Answer(body=json.dumps(quote(KEY, safe="")).encode()),
    "percent-encoded in small letters": Answer(body=json.dumps(quote(KEY).lower().replace("key", "kEy")).encode()),
    "percent-encoded twice": Answer(body=json.dumps(quote(quote(KEY, safe=""), safe="")).encode()),
    "of a form": Answer(body=quote_plus(KEY).encode(), media_type="application/x-www-form-urlencoded"),
    "escaped slashes": Answer(body=SLASHES.encode()),
    "escaped slashes of a failure": Answer(400, SLASHES.encode()),
    "escaped slashes of a busy server": Answer(503, SLASHES.encode(), headers={"Retry-After": "0"}),
    "escaped punctuation": Answer(body=json.dumps(KEY).replace("=", "\\u003D").replace("/", "\\u002f").encode()),
    "escaped letters": Answer(body=json.dumps({KEY: KEY}).replace("kEy", "\\u006bEy").encode()),
    "json in json": Answer(body=json.dumps(SLASHES).encode()),
    "another charset": Answer(body=KEY.encode("utf-16"), media_type="text/plain; charset=utf-16"),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES)
async def test_a_repeated_key_is_hidden_in_whatever_form_it_comes_back(answer: Answer) -> None:
    result = await ask(lambda _: answer)
    told = f"{result!r}"
    assert "***" in told
    assert "kEy" not in told
    assert "z8" not in told


async def test_a_key_is_hidden_in_the_url_that_a_service_repeats() -> None:
    result = await ask(lambda request: Answer(body=json.dumps(request.target).encode()))
    assert result.text.strip('"') == "/things?api_key=***"


@pytest.mark.parametrize("by_client", [False, True], ids=["url", "client"])
async def test_a_user_and_a_password_are_hidden_as_the_header_has_them_and_decoded(by_client: bool) -> None:
    def echo(request: Received) -> Answer:
        header = request.headers["authorization"]
        decoded = base64.b64decode(header.split()[1]).decode()
        return Answer(body=json.dumps([header, header.split()[1], decoded, decoded.split(":")[1]]).encode())

    async with httpx2.AsyncClient(auth=("eve-1", "pass/w0rd")) as client:
        result = await (ask(echo, client=client) if by_client else ask(echo, user="eve-1:pass%2Fw0rd"))
    assert result.text == '["***","***","***","***"]'
