"""The loop with a model behind HTTP: real connections that open and break during a pass."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import tool
from callgate.agent import Agent
from callgate.agent.run_events import AgentEvent, CallStarted, MessageEnded
from callgate.models.http_transport import Retries
from callgate.models.model_events import TextDelta
from callgate.models.providers import model
from callgate.stream import StreamLimits
from callgate.testing import Call, Drop, Fail, Item, Pause, Reply, ScriptedServer
from tests.waiting import PATIENCE_S, let_pass, soon


@tool(effect="none")
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


LOOK: list[Item] = ["I look. ", Call("look", {"what": "a"})]


async def test_a_tool_result_is_sent_in_the_next_http_request() -> None:
    async with ScriptedServer([LOOK, "It is fine."]) as server:
        over_http = model("openai-compatible:any", base_url=server.url)
        async with Agent(over_http, tools=[look]) as agent:
            result = await agent.run("Look at a.")
        await over_http.close()
        assert (result.status, result.text) == ("completed", "It is fine.")
        sent: Any = server.requests[1].body_json["messages"]
        assert sent[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "a is fine"}


async def test_a_read_starts_before_the_rest_of_its_message_has_arrived() -> None:
    """The server sends the end of the message only after the call has started."""
    events: list[AgentEvent] = []
    begun = Pause(asyncio.Event())

    def hear(event: AgentEvent) -> None:
        events.append(event)
        if isinstance(event, CallStarted):
            begun.until.set()  # type: ignore[union-attr]

    async with ScriptedServer([[*LOOK, begun, Call("look", {"what": "b"})], "Both are fine."]) as server:
        over_http = model("openai-compatible:any", base_url=server.url)
        async with Agent(over_http, tools=[look]) as agent:
            result = await agent.run("Look.", on_event=hear)
        await over_http.close()
    assert (result.status, len(result.results)) == ("completed", 2)
    kinds = [type(event) for event in events]
    assert kinds.index(CallStarted) < kinds.index(MessageEnded)


@pytest.mark.parametrize("where", ["headers", "body"])
@pytest.mark.parametrize("given", ["environment", "limits"])
async def test_the_http_transport_uses_the_idle_limit_of_the_stream(given: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirements B9, B22, B24: the transport does not time out before the limit of the stream, and then the status is `timeout`."""
    held = asyncio.Event()
    script: Any = ["I ", Pause(held), "wait."] if where == "body" else Reply(turn="I wait.", before=Pause(held))
    limits = StreamLimits(idle_s=1_000) if given == "limits" else None
    monkeypatch.setenv("STREAM_SDK_CALL_TIMEOUT_MS", "30000" if given == "limits" else "1000000")
    async with ScriptedServer([script, script]) as server:
        over_http = model("openai-compatible:any", base_url=server.url)
        async with Agent(over_http, stream_limits=limits) as agent:
            for passed_s, silent in ((900, False), (1_001, True)):
                held.clear()
                events: list[AgentEvent] = []
                before = len(server.requests)
                running = asyncio.ensure_future(agent.run("Go.", on_event=events.append))
                assert await soon(lambda before=before: len(server.requests) > before)  # type: ignore[misc]
                assert where == "headers" or await soon(lambda events=events: any(isinstance(one, TextDelta) for one in events))  # type: ignore[misc]
                let_pass(passed_s)
                await server.requests[-1].gone.wait() if silent else await asyncio.sleep(0.2)  # timers that are due fire here
                held.set()
                result = await asyncio.wait_for(running, PATIENCE_S)
                assert result.turn_status == ("timeout" if silent else "completed")
                assert result.reason.startswith("SDK_CALL_TIMEOUT:") is silent
        await over_http.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_stop_and_kill_close_the_connection_and_end_the_run_as_stopped_by_user(how: str) -> None:
    said = asyncio.Event()
    async with ScriptedServer([["Half", Pause(asyncio.Event())]]) as server:
        over_http = model("openai-compatible:any", base_url=server.url)
        async with Agent(over_http) as agent:
            running = asyncio.ensure_future(agent.run("Hi.", conversation="c", on_event=lambda event: said.set()))
            await asyncio.wait_for(server_has(server, said), PATIENCE_S)
            getattr(agent, how)("c", "enough")
            result = await asyncio.wait_for(running, PATIENCE_S)
        await asyncio.wait_for(server.requests[0].gone.wait(), PATIENCE_S)
        await over_http.close()
    assert (result.status, result.turn_status, result.reason) == ("stopped", "stopped_by_user", "enough")


async def server_has(server: ScriptedServer, said: asyncio.Event) -> None:
    assert await soon(lambda: server.requests)
    await said.wait()


async def test_an_interrupted_response_leaves_no_results_and_is_reported_as_cut_off() -> None:
    async with ScriptedServer([[*LOOK, Drop()]]) as server:
        over_http = model("openai-compatible:any", base_url=server.url, retries=Retries(max_retries=0))
        async with Agent(over_http, tools=[look]) as agent:
            result = await agent.run("Look.")
        await over_http.close()
    assert (result.status, result.turn_status, result.results) == ("failed", "error", ())
    assert "was cut off" in result.reason
    assert "Ask again" in result.reason


async def test_a_refused_api_key_is_reported_by_its_variable_and_never_printed() -> None:
    async with ScriptedServer([Reply(turn=Fail("invalid_api_key", "Incorrect API key provided."), status=401)]) as server:
        over_http = model("openai:any", base_url=server.url, api_key="sk-test-000")
        async with Agent(over_http) as agent:
            result = await agent.run("Hi.")
        await over_http.close()
    assert result.status == "failed"
    assert "Check the key in OPENAI_API_KEY" in result.reason
    assert "sk-test-000" not in result.reason
