"""Calls on behalf of a client: the messages that it receives, its capabilities at the server, and the session of its calls."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RetryPolicy, ToolResult
from callgate.mcp import RequestRejected, mcp, on_behalf_of
from tests.engine_calls import call, said
from tests.mcp.calling_clients import ELICITS, Client, accepting
from tests.mcp.fakes import ANSWER, Fake, tool
from tests.waiting import slow_clock, until

pytestmark = [pytest.mark.process]

ERAS = pytest.mark.parametrize("era", ["stateless", "handshake"])
QUESTION = {"method": "elicitation/create", "params": {"message": "Which branch?", "requestedSchema": {"type": "object"}}}
_ASKING = str(Path(__file__).parents[1] / "gateway" / "asking_server.py")
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


async def for_client(client: Client, engine: Engine, name: str = "work", **arguments: Any) -> ToolResult:
    with on_behalf_of(client):
        return await said(engine, call(name, **arguments))


@ERAS
async def test_the_response_reaches_the_client_as_the_server_sent_it(tmp_path: Path, era: str) -> None:
    frame = '{"jsonrpc":"2.0","id":{ID},"result":{"content":[],"x-own":{"a":null},"_meta":{"m":1}}}\n'
    client = Client()
    async with Engine(servers=[Fake(tmp_path, frame, era=era).server()]) as engine:
        await for_client(client, engine)
    assert [one["result"] for one in client.responses] == [{"content": [], "x-own": {"a": None}, "_meta": {"m": 1}}]


@ERAS
async def test_an_error_reaches_the_client_as_the_server_sent_it(tmp_path: Path, era: str) -> None:
    error = {"code": -32021, "message": "no elicitation", "data": {"requiredCapabilities": ELICITS}}
    frame = '{"jsonrpc":"2.0","id":{ID},"error":' + json.dumps(error) + "}\n"
    client = Client()
    async with Engine(servers=[Fake(tmp_path, frame, era=era).server()]) as engine:
        result = await for_client(client, engine)
    assert [one["error"] for one in client.responses] == [error]
    assert result.status == "error"


@ERAS
async def test_progress_and_logs_of_a_call_reach_its_client(tmp_path: Path, era: str) -> None:
    log = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": {"x": 1}}}) + "\n"
    client = Client()
    async with Engine(servers=[Fake(tmp_path, {"progress": "half"}, log, ANSWER, era=era).server()]) as engine:
        await for_client(client, engine)
    assert client.progress == [{"progress": 1, "total": 2, "message": "half"}]
    assert client.logs == [{"level": "info", "data": {"x": 1}}]


@ERAS
async def test_the_clients_meta_is_sent_and_the_sessions_own_fields_win(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, ANSWER, era=era)
    async with Engine(servers=[fake.server()]) as engine:
        await for_client(Client(meta={"traceparent": "00-1-2-01", "progressToken": "theirs"}), engine)
    meta = fake.calls()[0]["_meta"]
    assert meta["traceparent"] == "00-1-2-01"
    assert isinstance(meta["progressToken"], int)


@ERAS
async def test_a_question_of_the_server_is_answered_by_the_client_and_not_by_the_host(tmp_path: Path, era: str) -> None:
    async def host(params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise AssertionError("the host was asked")

    client = Client("alice", ELICITS, replies=accepting(branch="main"))
    async with Engine(servers=[Fake(tmp_path, {"ask": QUESTION}, era=era).server(elicitation=host)]) as engine:
        result = await for_client(client, engine)
    assert json.loads(result.text) == {"action": "accept", "content": {"branch": "main"}}
    assert client.asked == [("elicitation/create", QUESTION["params"])]
    assert len(client.responses) == 1


@ERAS
async def test_the_server_is_told_the_capabilities_of_the_client(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, ANSWER, era=era)
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {"tools": {}}}
    async with Engine(servers=[fake.server()]) as engine:
        await for_client(Client("alice", capabilities), engine)
        await said(engine, call("work"))
    if era == "handshake":
        assert [one["params"]["capabilities"] for one in fake.seen("initialize")] == [{}, capabilities]
    else:
        assert [one["_meta"][CAPABILITIES] for one in fake.calls()] == [capabilities, {}]
        assert len(fake.pids) == 1


@ERAS
async def test_a_refusal_of_the_client_is_told_to_the_server(tmp_path: Path, era: str) -> None:
    client = Client("alice", ELICITS)
    async with Engine(servers=[Fake(tmp_path, {"ask": QUESTION}, era=era).server()]) as engine:
        result = await for_client(client, engine)
    if era == "handshake":
        assert json.loads(result.text) == {"code": -1, "message": "the user is away"}
    else:
        assert json.loads(result.text) == {"action": "cancel"}


@ERAS
async def test_content_is_read_with_the_clients_capabilities_and_answers(tmp_path: Path, era: str) -> None:
    answers = {"resources/read": {"error": {"code": -32021, "message": "no", "data": {"requiredCapabilities": ELICITS}}}}
    fake = Fake(tmp_path, answers=answers, era=era, capabilities={"resources": {}})
    async with Engine(servers=[fake.server()]) as engine:
        with on_behalf_of(Client("alice", ELICITS, {"traceparent": "t"})), pytest.raises(RequestRejected) as refused:
            await engine.server("fake").read_resource("a://b")
    assert (refused.value.rpc_code, refused.value.data) == (-32021, {"requiredCapabilities": ELICITS})
    assert fake.seen("resources/read")[0]["params"]["_meta"]["traceparent"] == "t"


class TestSessions:
    """The sessions of a server of the handshake era."""

    async def test_clients_that_offer_nothing_share_the_first_session(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, ANSWER, era="handshake")
        async with Engine(servers=[fake.server()]) as engine:
            await for_client(Client(), engine)
            await for_client(Client(), engine)
        assert len(fake.pids) == 1

    async def test_a_client_keeps_its_session_and_another_has_its_own(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, ANSWER, era="handshake")
        async with Engine(servers=[fake.server()]) as engine:
            for client in (Client("alice"), Client("bob"), Client("alice"), Client("alice", ELICITS)):
                assert (await for_client(client, engine)).text == "done"
        assert len(fake.pids) == 4  # the first session, and three of clients

    @pytest.mark.parametrize(("isolation", "era", "started"), [("shared", "handshake", 1), ("principal", "stateless", 3)])
    async def test_isolation_says_who_shares_a_session(self, tmp_path: Path, isolation: Any, era: str, started: int) -> None:
        fake = Fake(tmp_path, ANSWER, era=era)
        async with Engine(servers=[fake.server(isolation=isolation)]) as engine:
            for client in (Client("alice", ELICITS), Client("bob"), Client("alice"), Client()):
                assert (await for_client(client, engine)).text == "done"
        assert len(fake.pids) == started

    async def test_a_shared_server_cannot_ask_a_client(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, {"ask": QUESTION}, era="handshake")
        client = Client("alice", ELICITS, replies=accepting())
        async with Engine(servers=[fake.server(isolation="shared")]) as engine:
            assert json.loads((await for_client(client, engine)).text)["code"] == -32601
        assert client.asked == []

    async def test_a_crash_hurts_only_the_calls_of_its_session(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, {"exit_after_first": True}, ANSWER, era="handshake")
        async with Engine(servers=[fake.server()]) as engine:
            assert (await for_client(Client("bob"), engine, "echo", text="bob")).text == "bob"
            assert (await for_client(Client("alice"), engine)).code == "tool_crashed"
            assert (await for_client(Client("bob"), engine, "echo", text="bob")).text == "bob"
            assert (await for_client(Client("alice"), engine, number=2)).text == "done"  # its session has been started again
        assert len(fake.pids) == 4

    async def test_a_tool_that_is_described_differently_to_a_client_is_not_called(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, ANSWER, era="handshake")
        async with Engine(servers=[fake.server()]) as engine:
            fake.write(frames=[ANSWER], tools=[tool("work", title="Another"), tool("echo")], era="handshake")
            result = await for_client(Client("alice"), engine)
            assert (await for_client(Client("alice"), engine, "echo", text="same")).text == "same"
        assert (result.status, result.code) == ("error", "not_done")
        assert [one["name"] for one in fake.calls()] == ["echo"]
        assert "describes this tool differently to this client" in result.text

    async def test_the_session_that_was_idle_longest_makes_room(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, ANSWER, era="handshake")
        async with Engine(servers=[fake.server(max_sessions=2)]) as engine:
            for key in ("alice", "bob", "alice", "carol", "alice"):
                assert (await for_client(Client(key), engine)).text == "done"
            assert len(fake.pids) == 4
            await for_client(Client("bob"), engine)
        assert len(fake.pids) == 5

    async def test_a_call_beyond_the_limit_is_not_sent_and_names_the_limit(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, {"until_cancelled": True}, era="handshake")
        soon = {"echo": {"retry": RetryPolicy(base_s=0.01)}}
        async with Engine(servers=[fake.server(max_sessions=1, effects={"work": "none", "echo": "none"}, options=soon)]) as engine:
            running = asyncio.create_task(for_client(Client("alice"), engine))
            await until(lambda: fake.calls())
            result = await for_client(Client("bob"), engine, "echo", text="no")
            running.cancel()
        assert "max_sessions" in result.text
        assert "1 sessions" in result.text

    async def test_a_session_that_is_not_used_is_closed(self, tmp_path: Path) -> None:
        fake = Fake(tmp_path, ANSWER, era="handshake")
        async with Engine(servers=[fake.server(session_idle_s=0.05)]) as engine:
            assert (await for_client(Client("alice"), engine)).text == "done"
            _, own = fake.pids
            await until(lambda: not Path(f"/proc/{own}").exists())
            assert (await for_client(Client("alice"), engine)).text == "done"
        assert len(fake.pids) == 3

    async def test_each_of_two_clients_with_one_key_answers_what_its_own_call_is_asked(self, tmp_path: Path) -> None:
        """Also while the calls of both run at once, as soon as it is known that the server asks."""
        fake = Fake(tmp_path, {"ask": QUESTION}, era="handshake")
        first, second = (Client("alice", ELICITS, replies=accepting(name=name), own_session=object()) for name in ("Ada", "Grace"))
        async with Engine(servers=[fake.server(effects={"work": "none"})]) as engine:
            await for_client(first, engine, number=0)
            for number in range(1, 4):
                results = await asyncio.gather(*(for_client(client, engine, number=number) for client in (first, second)))
                assert [json.loads(one.text)["content"]["name"] for one in results] == ["Ada", "Grace"]

    async def test_a_question_that_belongs_to_no_call_is_asked_again_if_the_request_that_carried_it_ends(self, tmp_path: Path) -> None:
        async def never(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            await asyncio.Event().wait()
            return {}

        async def folders(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"roots": [{"uri": "file:///first"}]}

        server = mcp([sys.executable, str(Path(__file__).parents[1] / "gateway" / "folders_server.py")], effects={"folders": "none"})

        class Waiting(Client):
            @property
            def key(self) -> str:
                """Read when the call takes its place in a session."""
                waits.set()
                return "alice"

            @key.setter
            def key(self, _: object) -> None: ...

        waits = asyncio.Event()
        first, second = Client("alice", {"roots": {}}, replies=never), Waiting("alice", {"roots": {}}, replies=folders)
        async with Engine(servers=[server]) as engine:
            leaving = asyncio.create_task(for_client(first, engine, "folders"))
            await until(lambda: first.asked)
            staying = asyncio.create_task(for_client(second, engine, "folders", again=True))
            await waits.wait()
            leaving.cancel()
            assert json.loads((await staying).text) == [{"uri": "file:///first"}]

    async def test_a_question_ends_with_the_call_of_its_client(self, tmp_path: Path) -> None:
        ended = asyncio.Event()

        async def reply(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return {}

        client = Client("alice", ELICITS, replies=reply)
        fake = Fake(tmp_path, {"ask": QUESTION}, era="handshake")
        async with Engine(servers=[fake.server()]) as engine:
            running = asyncio.create_task(for_client(client, engine))
            await until(lambda: client.asked)
            running.cancel()
            await ended.wait()
            await until(lambda: any("error" in message for message in fake.seen()))

    async def test_a_question_outside_of_all_calls_is_refused(self, tmp_path: Path) -> None:
        asks = json.dumps({"jsonrpc": "2.0", "id": "late", **QUESTION}) + "\n"
        client = Client("alice", ELICITS, replies=accepting())
        fake = Fake(tmp_path, ANSWER, asks, era="handshake")
        async with Engine(servers=[fake.server()]) as engine:
            await for_client(client, engine)
            await until(lambda: [message for message in fake.seen() if message.get("id") == "late"])
        (reply,) = [message for message in fake.seen() if message.get("id") == "late"]
        assert "error" in reply
        assert client.asked == []


async def test_the_65th_question_at_a_time_is_refused(tmp_path: Path) -> None:
    answered = asyncio.Event()

    async def reply(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        await answered.wait()
        return {"action": "decline"}

    client = Client("alice", ELICITS, replies=reply, own_session=object())
    fake = Fake(tmp_path, {"ask": QUESTION}, era="handshake")
    async with Engine(servers=[fake.server(effects={"work": "none"})]) as engine:
        calls = [asyncio.ensure_future(for_client(client, engine, n=n)) for n in range(65)]
        (refused,) = (await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED))[0]
        assert len(client.asked) == 64
        answered.set()
        results = [json.loads((await one).text) for one in calls if one is not refused]
    assert "64 requests of this server wait already" in (await refused).text
    assert results == [{"action": "decline"}] * 64


async def test_a_call_does_not_wait_for_the_end_of_a_process_that_has_answered_that_it_takes_no_handshake(tmp_path: Path) -> None:
    client = Client("ada", ELICITS, replies=accepting(name="Ada"), own_session=object())
    server = mcp([sys.executable, _ASKING, "stateless", str(tmp_path / "log")], name="asking")
    async with Engine(servers=[server]) as engine:
        with slow_clock():
            assert "Ada" in (await for_client(client, engine, "ask")).text
