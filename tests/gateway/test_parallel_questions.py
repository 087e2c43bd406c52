"""What a server asks while several calls of one client run at once belongs to the call that asked, or is refused."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.raw_client import Era, RawClient, raw_client, served
from tests.waiting import until

pytestmark = pytest.mark.process

_ASKING = str(Path(__file__).with_name("asking_server.py"))
_ELICITS: Mapping[str, Any] = {"elicitation": {"form": {}}}
Message = dict[str, Any]


class Calls:
    """Calls of the tools of the asking server of the handshake era, through a gateway."""

    def __init__(self, client: RawClient, log: Path) -> None:
        self.client = client
        self._log = log

    async def began(self, tool: str, **arguments: Any) -> asyncio.Future[Message]:
        """Send a call; return its response when the server has it."""
        before = self.lines(f"call {tool}")
        _, response = self.client.begin("tools/call", {"name": tool, "arguments": arguments})
        await until(lambda: self.lines(f"call {tool}") > before)
        return response

    async def go(self, name: str, *, questions: int = 0) -> None:
        """Let the calls that wait for this name continue, until the server has asked this many questions more."""
        wanted = self.lines("asks") + questions
        self._log.with_name(f"log.{name}").touch()
        await until(lambda: self.lines("asks") >= wanted)

    def lines(self, beginning: str) -> int:
        return sum(line.startswith(beginning) for line in self._log.read_text(encoding="utf-8").splitlines())

    async def answered(self, response: Message, name: str, **arguments: Any) -> Any:
        """Answer what the result of a call asks; return what the tool has returned then."""
        result = response["result"]
        ((key, _),) = result["inputRequests"].items()
        answer = {"inputResponses": {key: _accepted(name)}, "requestState": result["requestState"]}
        return _returned(await self.client.call("ask_later", arguments, **answer))


@asynccontextmanager
async def calls(front: Era, tmp_path: Path) -> AsyncIterator[Calls]:
    log = tmp_path / "log"
    async with raw_client(served(servers=[[sys.executable, _ASKING, "handshake", str(log)]]), front, _ELICITS) as client:
        assert "tools" in (await client.request("tools/list", {}))["result"]
        yield Calls(client, log)


def _accepted(name: str) -> Message:
    return {"action": "accept", "content": {"name": name}}


def _returned(response: Message) -> Any:
    return json.loads(response["result"]["content"][0]["text"])


def _asked(response: Message) -> list[str]:
    return [one["params"]["message"] for one in response["result"].get("inputRequests", {}).values()]


async def test_a_question_waits_until_it_is_certain_which_call_it_belongs_to(tmp_path: Path) -> None:
    async with calls("stateless", tmp_path) as made:
        asks = await made.began("ask_later", go="a", **{"as": "first"})
        works = await made.began("work_later", go="b")
        await made.go("a", questions=1)
        await made.go("b")
        assert (await works)["result"]["content"][0]["text"] == "done"
        response = await asks
        assert _asked(response) == ["Your name? (first)"]
        assert await made.answered(response, "Ada", go="a", **{"as": "first"}) == [_accepted("Ada")]


async def test_of_calls_that_all_ask_at_once_one_is_answered_and_the_others_are_refused_and_then_none_is(tmp_path: Path) -> None:
    """A server that has asked runs in one process for each call that can be asked, so that there is nothing to refuse any more."""
    async with calls("stateless", tmp_path) as made:
        first, second = [await made.began("ask_later", **{"as": name}) for name in ("first", "second")]
        await made.go("go", questions=2)
        both = await asyncio.gather(first, second)
        refused, response = sorted(both, key=lambda one: len(_asked(one)))
        (refusal,) = _returned(refused)
        assert "cannot be told which of them" in refusal["message"]
        own = "first" if response is both[0] else "second"
        assert _asked(response) == [f"Your name? ({own})"]
        assert await made.answered(response, own, **{"as": own}) == [_accepted(own)]
        responses = {name: await made.began("ask_later", **{"as": name}) for name in ("third", "fourth", "fifth")}
        for name, one in responses.items():
            assert _asked(await one) == [f"Your name? ({name})"]
        for name, one in reversed(responses.items()):
            assert await made.answered(await one, name, **{"as": name}) == [_accepted(name)]


async def test_a_cancelled_call_leaves_its_question_to_no_other(tmp_path: Path) -> None:
    """Its tool may not have been stopped yet, and ask."""
    async with calls("stateless", tmp_path) as made:
        number, cancelled = made.client.begin("tools/call", {"name": "ask_later", "arguments": {"go": "a", "as": "gone"}})
        await until(lambda: made.lines("call ask_later") == 1)
        works = await made.began("work_later", go="b")
        made.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        await until(lambda: made.lines("cancelled") == 1)
        await made.go("a", questions=1)
        await until(lambda: made.lines("answered") == 1)
        await made.go("b")
        assert (await works)["result"]["content"][0]["text"] == "done"
        asks = await made.began("ask_later", go="a", **{"as": "next"})
        assert _asked(await asks) == ["Your name? (next)"]
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)


async def test_a_client_with_one_connection_is_asked_everything_at_once_in_one_session(tmp_path: Path) -> None:
    """Each question reaches the same client, whichever call it belongs to, and each answer reaches the call that asked."""
    async with calls("handshake", tmp_path) as made:
        responses = {name: await made.began("ask_later", **{"as": name}) for name in ("first", "second")}
        works = await made.began("work_later", go="never")
        await made.go("go", questions=2)
        asked = [await made.client.next_message() for _ in responses]
        for question in reversed(asked):
            name = question["params"]["message"].removeprefix("Your name? (").removesuffix(")")
            made.client.send({"jsonrpc": "2.0", "id": question["id"], "result": _accepted(name)})
        for name, response in responses.items():
            assert _returned(await response) == [_accepted(name)]
        assert made.lines("start") == 2  # one that lists the tools, and the client's
        await made.go("never")
        await works
