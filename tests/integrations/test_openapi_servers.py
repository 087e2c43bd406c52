"""Where the requests of tools from an OpenAPI document go, and where the credentials of the host must not go."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from callgate import Engine, RawCall, UsageError
from callgate.integrations.openapi import openapi_tools
from tests.engine_calls import result_of
from tests.integrations.http_api import Answer, HttpApi, Received, json_answer
from tests.integrations.shop_document import operation

KEY = {"X-API-Key": "key-5150"}


def ok(_: Received) -> Answer:
    return json_answer("{}")


def document(*, root: object = None, path: object = None, own: object = None) -> dict[str, Any]:
    """Return a document with the operation `ask` and servers in up to three places."""
    found = operation() if own is None else operation(servers=own)
    if path is not None:
        found["paths"]["/things"]["servers"] = path
    return found if root is None else found | {"servers": root}


def server(url: str) -> list[dict[str, Any]]:
    return [{"url": url}]


@pytest.mark.parametrize(
    ("path", "own", "target"),
    [(None, None, "/v1/things"), ("/v2", None, "/v2/things"), (None, "v3", "/v1/v3/things"), ("/v2", "/v3/", "/v3/things")],
    ids=["document", "path", "operation", "operation and path"],
)
@pytest.mark.parametrize("given", [False, True], ids=["server", "base_url"])
async def test_the_server_of_an_operation_precedes_those_of_its_path_and_of_the_document(
    path: str | None, own: str | None, target: str, given: bool
) -> None:
    async with HttpApi(ok) as api:
        read = document(
            root=server("https://elsewhere.example" if given else f"{api.url}/v1"), path=path and server(path), own=own and server(own)
        )
        async with Engine(openapi_tools(read, base_url=f"{api.url}/v1" if given else None, headers=KEY)) as engine:
            assert result_of(await engine.call(RawCall(name="ask", arguments={}))).success
        assert [request.target for request in api.received] == [target]


async def test_of_several_servers_of_an_operation_the_one_with_the_origin_of_the_base_is_used() -> None:
    async with HttpApi(ok) as api:
        read = document(own=[*server("https://other.example/v9"), *server(f"{api.url}/v4")])
        async with Engine(openapi_tools(read, base_url=api.url)) as engine:
            assert result_of(await engine.call(RawCall(name="ask", arguments={}))).success
        assert [request.target for request in api.received] == ["/v4/things"]


@pytest.mark.parametrize("place", ["path", "own"])
@pytest.mark.parametrize("url", ["https://upload.example", "http://api.example", "https://api.example:444", "//upload.example/v1"])
def test_an_operation_whose_server_has_another_origin_is_refused_unless_it_is_excluded(place: str, url: str) -> None:
    read = document(root=server("https://api.example/v1"), **{place: server(url)})
    with pytest.raises(UsageError) as caught:
        openapi_tools(read, headers=KEY)
    assert "Operation 'ask' (GET /things)" in str(caught.value)
    assert url in str(caught.value)
    assert "'https://api.example/v1'" in str(caught.value)
    assert openapi_tools(read, headers=KEY, exclude=["ask"]) == []
    (tool,) = openapi_tools(read, include=["ask"], base_url=url if ":" in url else f"https:{url}")
    assert tool.name == "ask"


def test_the_default_port_is_no_other_origin() -> None:
    assert openapi_tools(document(own=server("https://API.example:443/v2")), base_url="https://api.example")


def test_servers_that_are_no_list_are_refused() -> None:
    with pytest.raises(UsageError, match="'servers' is an object; it must be a list"):
        openapi_tools(document(own={"url": "/"}), base_url="https://api.example")


async def test_a_client_of_the_host_that_follows_redirects_sends_no_credentials_elsewhere() -> None:
    async with HttpApi(ok) as other, HttpApi(lambda _: json_answer("{}", 302, Location=f"{other.url}/things")) as api:
        async with (
            httpx2.AsyncClient(follow_redirects=True) as client,
            Engine(openapi_tools(operation(), base_url=api.url, headers=KEY, client=client)) as engine,
        ):
            result = result_of(await engine.call(RawCall(name="ask", arguments={})))
        assert other.received == []
    assert "Redirects are not followed" in result.text
