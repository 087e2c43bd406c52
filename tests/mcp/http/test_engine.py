"""Tools of a server on the network, called through an engine: both eras, from one line of configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from callgate import Engine, RetryPolicy, Scope, UsageError
from callgate.events import Progress
from callgate.mcp import RequestRejected, mcp, on_behalf_of
from callgate.tools.retry_policy import NO_RETRY
from tests.engine_calls import call, said
from tests.mcp.calling_clients import ELICITS, Client
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.sdk_server import SdkServer
from tests.mcp.http.session_server import TEXT, SessionServer
from tests.mcp.http.test_sdk_server import acquired
from tests.waiting import until


@pytest.fixture(params=["both", "handshake"], ids=["2026-07-28", "2025-11-25"])
def server(request: pytest.FixtureRequest) -> Iterator[SdkServer]:
    with SdkServer(era=request.param) as server:
        yield server


async def test_a_call_returns_the_result_of_the_tool(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url)]) as engine:
        result = await said(engine, call("echo", text="hello"))
    assert (result.structured, result.text) == ({"result": "hello"}, "hello")


async def test_resources_and_prompts_are_read(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url, name="sdk")]) as engine:
        content = engine.server("sdk")
        assert [one["uriTemplate"] for one in await content.list_resource_templates()] == ["note://{name}"]
        read = await content.read_resource("note://zürich")
        assert read["contents"][0]["text"] == "the note zürich"
        assert [one["name"] for one in await content.list_prompts()] == ["review"]
        prompt = await content.get_prompt("review", {"language": "Python"})
        assert prompt["messages"][0]["content"]["text"] == "Review this Python code."
        with pytest.raises(RequestRejected) as refused:
            await content.read_resource("absent://one")
    assert refused.value.rpc_code in (-32602, -32002)


async def test_sixty_four_calls_run_at_once(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url, effects={"echo": "none"})]) as engine:
        results = await asyncio.gather(*(said(engine, call("echo", text=str(number))) for number in range(64)))
    assert [result.structured for result in results] == [{"result": str(number)} for number in range(64)]


async def test_a_call_that_reaches_its_deadline_is_cancelled_inside_the_tool(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url, options={"wait": {"timeout_s": 0.5}})]) as engine:
        result = await said(engine, call("wait"))
        assert result.status == "unknown"
        assert await acquired(server.cancelled)
        assert (await said(engine, call("echo", text="next"))).structured == {"result": "next"}


async def test_progress_is_told_while_the_call_runs(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url)]) as engine:
        seen: list[object] = []
        engine.bus.subscribe(lambda _, item: seen.append(item), "call.progress")
        assert (await said(engine, call("count", steps=2))).text == "counted"
    assert [item.text for item in seen if isinstance(item, Progress)] == ["1/2: step 1", "2/2: step 2"]


async def test_a_question_of_the_server_is_answered_by_the_handler() -> None:
    async def answered(params: Any) -> Any:
        assert params["message"] == "Which colour?"
        return {"action": "accept", "content": {"colour": "red"}}

    with SdkServer(era="handshake") as server:
        async with Engine(servers=[mcp(server.url, elicitation=answered)]) as engine:
            assert (await said(engine, call("ask"))).text == "red"


async def test_each_client_is_asked_the_questions_of_its_own_calls() -> None:
    """Both calls run at the same time in one session, so only the stream tells the two questions apart."""
    both = asyncio.Barrier(2)

    async def asked(client: str) -> str:
        async def reply(method: str, params: Any) -> Any:
            await both.wait()
            return {"action": "accept", "content": {"colour": client}}

        with on_behalf_of(Client("the same", ELICITS, replies=reply)):
            return (await said(engine, call("ask", client=client), Scope(conversation=client))).text

    with SdkServer(era="handshake") as server:
        async with Engine(servers=[mcp(server.url, effects={"ask": "none"})]) as engine:
            assert list(await asyncio.gather(asked("red"), asked("blue"))) == ["red", "blue"]


async def test_progress_and_the_response_reach_the_client(server: SdkServer) -> None:
    client = Client("alice", ELICITS)
    async with Engine(servers=[mcp(server.url)]) as engine:
        with on_behalf_of(client):
            assert (await said(engine, call("count", steps=2))).text == "counted"
    assert [one["progress"] for one in client.progress] == [1, 2]
    assert client.responses[0]["result"]["content"] == [{"type": "text", "text": "counted"}]


async def test_a_tool_that_the_server_adds_can_be_called(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url)]) as engine:
        while (await said(engine, call("grown"))).status != "ok":
            await said(engine, call("grow"))


async def test_calls_go_on_after_the_server_was_restarted(server: SdkServer) -> None:
    async with Engine(servers=[mcp(server.url, options={"echo": {"retry": NO_RETRY}})]) as engine:
        assert (await said(engine, call("echo", text="before"))).status == "ok"
        server.__exit__()
        refused = await said(engine, call("echo", text="between"))
        assert (refused.status, refused.code) == ("error", "not_started")
        with SdkServer(era=server.era, port=server.port) as restarted:
            result = await said(engine, call("echo", text="after"))
            while result.code == "not_started":  # the engine has not noticed yet that the server is back
                result = await said(engine, call("echo", text="after"))
            assert result.structured == {"result": "after"}
            assert restarted.calls == ["after"]


class Payments:
    """A server of the stateless era with the tool `pay`, whose calls are answered by `pay`."""

    def __init__(self, pay: Any) -> None:
        self._pay = pay
        self.paid = 0

    async def __call__(self, sent: Sent, reply: Reply) -> None:
        match sent.message["method"]:
            case "server/discover":
                await reply.json(result_of(sent, supportedVersions=["2026-07-28"], capabilities={"tools": {}}))
            case "tools/list":
                await reply.json(result_of(sent, tools=[{"name": "pay", "inputSchema": {"type": "object"}}]))
            case _:
                self.paid += 1
                await self._pay(sent, reply)


async def drop(sent: Sent, reply: Reply) -> None:
    reply.drop()


async def refuse(sent: Sent, reply: Reply) -> None:
    await reply.send(403, "text/plain")


async def test_a_call_whose_connection_is_lost_is_unknown_and_never_sent_again() -> None:
    payments = Payments(drop)
    async with FakeServer(payments) as server, Engine(servers=[mcp(server.url)]) as engine:
        first = await said(engine, call("pay", key="order-1"))
        again = await said(engine, call("pay", key="order-1"))
    assert (first.status, again.status) == ("unknown", "unknown")
    assert payments.paid == 1


async def test_a_body_that_begins_with_a_byte_order_mark_is_read() -> None:
    """Some servers on Windows write one before everything that they send, as at the beginning of standard output."""

    async def write_mark(sent: Sent, reply: Reply) -> None:
        await reply.send(200, "application/json", b"\xef\xbb\xbf" + json.dumps(result_of(sent, content=[TEXT])).encode())

    async with FakeServer(Payments(write_mark)) as server, Engine(servers=[mcp(server.url)]) as engine:
        assert (await said(engine, call("pay"))).text == TEXT["text"]


async def test_a_lost_call_says_one_thing_of_its_effect() -> None:
    """A model that is told "it may have done what was asked" and "nothing was changed" of one call believes either."""
    texts = {}
    async with FakeServer(Payments(drop)) as server:
        for effect in ("none", "once"):
            async with Engine(servers=[mcp(server.url, effects={"pay": effect}, options={"pay": {"retry": NO_RETRY}})]) as engine:
                texts[effect] = (await said(engine, call("pay"))).text
    assert "Nothing was changed" in texts["none"]
    assert "It may have taken effect" in texts["once"]
    assert not any("may have done what was asked" in text for text in texts.values())


async def test_a_refusal_of_a_later_attempt_says_nothing_of_an_earlier_one_that_was_lost() -> None:
    async def drop_then_refuse(sent: Sent, reply: Reply) -> None:
        if payments.paid == 1:
            reply.drop()
        else:
            await reply.json({"jsonrpc": "2.0", "id": sent.message["id"], "error": {"code": -32602, "message": "Unknown tool: pay"}})

    payments = Payments(drop_then_refuse)
    options = {"pay": {"retry": RetryPolicy(base_s=0)}}
    async with FakeServer(payments) as server, Engine(servers=[mcp(server.url, effects={"pay": "idempotent"}, options=options)]) as engine:
        result = await said(engine, call("pay"))
    assert (payments.paid, result.status) == (2, "unknown")
    assert "It may have taken effect" in result.text


@pytest.mark.parametrize(("effect", "status", "paid"), [("none", 503, 2), ("idempotent", 502, 2), ("once", 504, 1), ("none", 500, 1)])
async def test_a_gateway_that_cannot_reach_its_server_is_asked_again_if_a_repetition_is_safe(effect: Any, status: int, paid: int) -> None:
    async def fail_once(sent: Sent, reply: Reply) -> None:
        if payments.paid == 1:
            await reply.send(status, "text/html", b"<h1>down</h1>")
        else:
            await reply.json(result_of(sent, content=[TEXT]))

    payments = Payments(fail_once)
    options = {"pay": {"retry": RetryPolicy(base_s=0)}}
    async with FakeServer(payments) as server, Engine(servers=[mcp(server.url, effects={"pay": effect}, options=options)]) as engine:
        result = await said(engine, call("pay"))
    assert (payments.paid, result.status) == (paid, "ok" if paid == 2 else "unknown" if effect == "once" else "error")


async def test_a_call_that_the_server_refuses_was_not_started_and_is_not_tried_again() -> None:
    payments = Payments(refuse)
    async with FakeServer(payments) as server, Engine(servers=[mcp(server.url)]) as engine:
        result = await said(engine, call("pay"))
    assert (result.status, result.code) == ("error", "not_done")
    assert "403 Forbidden" in result.text
    assert payments.paid == 1


async def test_a_forgotten_session_is_renewed_within_the_call() -> None:
    async def lists(sent: Sent, reply: Reply) -> None:
        listing = sent.message["method"] == "tools/list"
        tools = [{"name": "pay", "inputSchema": {"type": "object"}}]
        await reply.json(result_of(sent, **({"tools": tools} if listing else {"content": [TEXT]})))

    async with SessionServer(lists) as server, Engine(servers=[mcp(server.url)]) as engine:
        assert (await said(engine, call("pay"))).text == "done"
        server.forget()
        assert (await said(engine, call("pay"))).text == "done"
        await until(lambda: len(server.sent("tools/list")) == 2)
    assert server.opened == 2
    assert server.http.methods[0] == "server/discover"


async def test_a_server_on_the_network_is_waited_for_longer_before_a_handshake_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have to be started for the first request, unlike a process that has been started."""
    monkeypatch.setattr("callgate.mcp._negotiation._PROBE_S", 0)
    async with FakeServer(Payments(drop)) as server, Engine(servers=[mcp(server.url)]):
        assert "initialize" not in server.methods


class Announces(Payments):
    """Announces a change of its tools to the second of its subscriptions; it ends the first, and adds a tool before the second."""

    def __init__(self) -> None:
        super().__init__(drop)
        self.subscriptions = 0

    async def __call__(self, sent: Sent, reply: Reply) -> None:
        match sent.message["method"]:
            case "server/discover":
                await reply.json(result_of(sent, supportedVersions=["2026-07-28"], capabilities={"tools": {"listChanged": True}}))
            case "tools/list":
                names = ["pay", "refund"][: self.subscriptions or 1]
                await reply.json(result_of(sent, tools=[{"name": name, "inputSchema": {"type": "object"}} for name in names]))
            case "subscriptions/listen":
                self.subscriptions += 1
                meta = {"io.modelcontextprotocol/subscriptionId": sent.message["id"]}
                told = {"notifications": {"toolsListChanged": True}, "_meta": meta}
                await reply.stream()
                await reply.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": told})
                if self.subscriptions > 1:
                    await asyncio.Event().wait()
                reply.drop()


async def test_a_subscription_that_has_ended_is_opened_again_and_the_tools_listed_again() -> None:
    async with FakeServer(Announces()) as server, Engine(servers=[mcp(server.url)]) as engine:
        await until(lambda: len(engine.schemas("openai")) == 2)
    assert server.methods.count("subscriptions/listen") == 2


async def test_a_required_server_that_wants_credentials_stops_the_start_with_the_header_that_it_wants() -> None:
    async with FakeServer(refuse) as server:
        with pytest.raises(UsageError, match=r"403 Forbidden.*It wants credentials.*`headers`.*Authorization"):
            async with Engine(servers=[mcp(server.url, required=True)]):
                pass


async def test_a_server_that_cannot_be_reached_does_not_stop_the_others(sdk_server: SdkServer, unused_tcp_port: int) -> None:
    servers = [mcp(f"http://127.0.0.1:{unused_tcp_port}/mcp", name="dead"), mcp(sdk_server.url, name="alive")]
    async with Engine(servers=servers) as engine:
        assert (await said(engine, call("echo", text="hello"))).status == "ok"


async def test_a_call_of_a_server_that_was_lost_at_its_start_is_not_said_to_have_done_anything() -> None:
    async def lost(sent: Sent, reply: Reply) -> None:
        reply.drop()

    async with FakeServer(lost) as server, Engine(servers=[mcp(server.url, name="down")]) as engine:
        result = await said(engine, call("pay"))
    assert "ended the connection before its answer was complete" in result.text
    assert "may have done" not in result.text
