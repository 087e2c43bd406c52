"""A server that asks for folders outside of a call gets those of the client, as it would without the gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.raw_client import Era, RawClient, raw_client, served

pytestmark = [pytest.mark.process]

_SERVER = str(Path(__file__).with_name("folders_server.py"))
FIRST, SECOND = [{"uri": "file:///first", "name": "First", "vendor": 1}], [{"uri": "file:///second"}]


@asynccontextmanager
async def gateway(front: Era) -> AsyncIterator[RawClient]:
    async with raw_client(served(servers=[[sys.executable, _SERVER]]), front, {"roots": {"listChanged": True}}) as client:
        yield client


async def asked(client: RawClient) -> object:
    """Return the id of the question for folders that comes next."""
    message = await client.next_message()
    assert message["method"] == "roots/list"
    return message["id"]


async def answer(client: RawClient, roots: list[dict[str, Any]]) -> None:
    client.send({"jsonrpc": "2.0", "id": await asked(client), "result": {"roots": roots}})


def told(response: dict[str, Any]) -> Any:
    return json.loads(response["result"]["content"][0]["text"])


async def test_a_server_gets_the_folders_that_it_asks_for_when_a_session_begins() -> None:
    async with gateway("handshake") as client:
        _, response = client.begin("tools/call", {"name": "folders"})
        await answer(client, FIRST)
        assert told(await response) == FIRST


async def test_a_stateless_client_is_asked_for_them_with_the_result_of_its_first_call() -> None:
    async with gateway("stateless") as client:
        result = (await client.request("tools/call", {"name": "folders"}))["result"]
        ((key, question),) = result["inputRequests"].items()
        answers = {"inputResponses": {key: {"roots": FIRST}}, "requestState": result["requestState"]}
        assert question["method"] == "roots/list"
        assert told(await client.request("tools/call", {"name": "folders", **answers})) == FIRST


async def test_a_server_is_told_that_the_folders_have_changed_and_gets_the_new_ones() -> None:
    async with gateway("handshake") as client:
        _, response = client.begin("tools/call", {"name": "folders"})
        await answer(client, FIRST)
        await response
        client.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await answer(client, SECOND)
        assert told(await client.request("tools/call", {"name": "folders"})) == SECOND


async def cancelled_while_asked(client: RawClient) -> tuple[object, dict[str, Any]]:
    """Cancel the first call while the client is asked for folders; return the id of the question, and the message that follows."""
    number, _ = client.begin("tools/call", {"name": "folders"})
    question = await asked(client)
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    return question, await client.next_message()


async def test_a_question_for_folders_is_withdrawn_when_the_client_cancels_its_call() -> None:
    async with gateway("handshake") as client:
        question, withdrawn = await cancelled_while_asked(client)
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question)


async def test_a_call_that_was_cancelled_before_it_was_sent_can_be_made_again() -> None:
    async with gateway("handshake") as client:
        await cancelled_while_asked(client)
        assert told(await client.request("tools/call", {"name": "folders"})) == "refused"
