"""Requests that wait for the answers of their clients: what they hold, and which answers continue them."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine
from callgate.gateway import Gateway, GatewayLimits, Principal
from callgate.mcp import mcp
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process

_ASKING = str(Path(__file__).with_name("asking_server.py"))
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
_NUMBERS = itertools.count(1)
Message = Mapping[str, Any]


class NoStream:
    """Takes what is sent beside the response, and drops it."""

    def send(self, message: Message) -> bool:
        return True


@asynccontextmanager
async def gateway(
    tmp_path: Path, era: str, *, max_sessions: int = 32, parked: int = 1_000, secret: bytes | None = None
) -> AsyncIterator[Gateway]:
    server = mcp([sys.executable, _ASKING, era, str(tmp_path / "log")], name="asking", max_sessions=max_sessions)
    async with Gateway(Engine(servers=[server]), limits=GatewayLimits(parked_requests=parked), secret=secret) as found:
        yield found


async def ask(gateway: Gateway, name: str, *, as_: str = "name", parallel: int = 64, **more: Any) -> Message:
    """Call the tool that asks the user, on behalf of a principal."""
    params = {"name": "ask", "arguments": {"as": as_}, "_meta": _META, **more}
    sent = {"jsonrpc": "2.0", "id": next(_NUMBERS), "method": "tools/call", "params": params}
    response = await gateway.stateless(Principal(name=name, parallel=parallel)).request(sent, NoStream())
    assert response is not None
    return response


async def asked_until_refused(gateway: Gateway, name: str) -> tuple[list[Message], Message]:
    """Ask again and again without an answer; return the responses with questions, and the first without one."""
    asked: list[Message] = []
    while "inputRequests" in (response := await ask(gateway, name)).get("result", {}):
        asked.append(response["result"])
    return asked, response


async def answered(gateway: Gateway, name: str, asked: Message) -> Message:
    result: Message = (await answer(gateway, name, asked, {"action": "accept", "content": {"name": "Ada"}}))["result"]
    return result


async def answer(gateway: Gateway, name: str, asked: Message, given: Message, *, as_: str = "name") -> Message:
    ((key, _),) = asked["inputRequests"].items()
    return await ask(gateway, name, as_=as_, inputResponses={key: given}, requestState=asked["requestState"])


async def test_unanswered_questions_of_one_principal_leave_sessions_of_a_server_to_others(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake", max_sessions=6) as served:
        asked, refused = await asked_until_refused(served, "alice")
        text = json.loads(refused["result"]["content"][0]["text"])["error"]
        assert len(asked) == 4
        assert "4 of them are in use by this client, and the rest is for others, so the request was not sent" in text
        assert "Ada" in str(await answered(served, "bob", (await ask(served, "bob"))["result"]))
        assert "Ada" in str(await answered(served, "carol", (await ask(served, "carol"))["result"]))
        assert "Ada" in str(await answered(served, "alice", asked[0]))
        assert "inputRequests" in (await ask(served, "alice", as_="other"))["result"]


async def test_unanswered_questions_of_one_principal_leave_places_of_waiting_requests_to_others(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless", parked=6) as served:
        asked, refused = await asked_until_refused(served, "alice")
        assert len(asked) == 4
        assert refused["error"]["message"] == (
            "4 requests of this principal wait for input already, and the other places are for others. Answer the questions of these"
            " requests, then try again."
        )
        assert "Ada" in str(await answered(served, "bob", (await ask(served, "bob"))["result"]))
        assert "Ada" in str(await answered(served, "alice", asked[0]))
        assert "inputRequests" in (await ask(served, "alice", as_="other"))["result"]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_call_that_waits_for_its_client_leaves_its_place_to_the_other_calls_of_the_principal(tmp_path: Path, era: str) -> None:
    async with gateway(tmp_path, era) as served, asyncio.timeout(PATIENCE_S):
        asked = [(await ask(served, "alice", as_=f"name {number}", parallel=1))["result"] for number in range(3)]
        for number, one in enumerate(asked):
            given = {"action": "accept", "content": {"name": f"Ada {number}"}}
            assert f"Ada {number}" in str(await answer(served, "alice", one, given, as_=f"name {number}"))
        assert "inputRequests" in (await ask(served, "alice", as_="another", parallel=1))["result"]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("wrong", [{"action": "maybe"}, {"content": {"name": "Ada"}}, {"action": "accept", "content": []}])
async def test_a_wrong_answer_is_refused_and_the_right_one_can_still_be_given(tmp_path: Path, era: str, wrong: Message) -> None:
    async with gateway(tmp_path, era) as served:
        asked = (await ask(served, "alice"))["result"]
        refused = await answer(served, "alice", asked, wrong)
        assert refused["error"]["code"] == -32602
        assert "it must be" in refused["error"]["message"]
        assert "Ada" in str(await answered(served, "alice", asked))


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_call_that_asked_a_gateway_which_has_ended_may_have_taken_effect(tmp_path: Path, era: str) -> None:
    """Nobody knows what the server did before it asked, so the client is not told to just call again."""
    secret = b"the secret of both, 32 bytes ...."
    async with gateway(tmp_path, era, secret=secret) as served:
        asked = (await ask(served, "alice"))["result"]
    async with gateway(tmp_path, era, secret=secret) as served:
        refused = (await answer(served, "alice", asked, {"action": "accept", "content": {"name": "Ada"}}))["error"]
    assert refused["code"] == -32602
    assert "it may have taken effect: check that before you make the request again" in refused["message"]
