"""Tests of the required fields of a call, the checks that stop it before it runs, and the context that its tool receives."""

from __future__ import annotations

import asyncio
import http.client
import logging
import re
from typing import Any

import pytest
from msgspec import Struct

from callgate import Aborted, Answered, Engine, RawCall, Restarted, Scope, Tool, ToolContext, tool
from callgate.builtins import fetch_tool
from callgate.models.model_protocol import StreamingContext
from callgate.testing import ManualClock
from tests.acceptance.process_tools import RUNNERS, facts, notices, run_by
from tests.effect_ledger import Ledger
from tests.engine_calls import call, kinds, result_of, said
from tests.waiting import PATIENCE_S


class Bot(Struct):
    """The live context that a typical host passes to its tools."""

    client: object
    message: object
    user_id: str
    guild_id: str
    state: dict[str, Any]
    streaming: object
    webhook: object
    persona_name: str
    persona_avatar_url: str
    persona_id: str
    is_impersonation: bool
    impersonated_user_id: str
    context_items: list[str]
    message_ids: dict[str, str]


def a_bot() -> Bot:
    return Bot(
        client=object(),
        message=object(),
        user_id="u1",
        guild_id="g1",
        state={"mood": "calm"},
        streaming=object(),
        webhook=object(),
        persona_name="Nova",
        persona_avatar_url="https://example.com/nova.png",
        persona_id="p7",
        is_impersonation=True,
        impersonated_user_id="u2",
        context_items=["first"],
        message_ids={"1": "one"},
    )


@pytest.mark.parametrize("raw", [RawCall.from_openai({}), RawCall.from_openai({"function": {}}), RawCall.from_dict({}), RawCall(name=" ")])
async def test_a_call_without_payload_or_name_aborts_with_an_error_and_is_logged(
    raw: RawCall, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        ledger.write("paid")
        return "paid"

    async with Engine([pay]) as engine:
        with caplog.at_level(logging.WARNING, logger="callgate"):
            outcome = await engine.call(raw)
    assert isinstance(outcome, Aborted)
    assert outcome.status == "error"
    assert "no name" in outcome.reason
    assert any(record.levelno == logging.WARNING and "no name" in record.getMessage() for record in caplog.records)
    assert ledger.lines() == []


async def test_a_stop_applies_to_its_conversation_only_and_before_the_tool_starts(ledger: Ledger) -> None:
    @tool
    async def pay(to: str) -> str:
        """Pay."""
        ledger.write(to)
        return "paid"

    async with Engine([pay]) as engine:
        engine.control.stop("here")
        stopped = await engine.call(call("pay", to="ann"), Scope(conversation="here"))
        assert isinstance(stopped, Aborted)
        assert stopped.status == "stopped_by_user"
        assert "call.started" not in kinds(engine)
        assert (await said(engine, call("pay", to="bob"), Scope(conversation="there"))).success
    assert ledger.lines() == ["bob"]


async def test_a_tool_context_has_the_scope_fields_and_the_unchanged_host_object() -> None:
    seen: list[ToolContext] = []

    @tool(effect="none")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx)
        return "seen"

    bot, streaming = a_bot(), StreamingContext("c1")
    async with Engine([look]) as engine:
        await said(engine, call("look"), Scope(conversation="c1", locale="de", provider="openai", extra=bot, streaming=streaming))
    (context,) = seen
    assert (context.conversation, context.locale, context.provider) == ("c1", "de", "openai")
    assert isinstance(context.provider, str)
    assert context.streaming is streaming
    host = context.extra
    assert isinstance(host, Bot)
    assert host is bot
    assert host.client is bot.client
    assert host.message is bot.message
    assert host.streaming is bot.streaming
    assert host.webhook is bot.webhook
    assert (host.user_id, host.guild_id, host.state) == ("u1", "g1", {"mood": "calm"})
    assert (host.persona_name, host.persona_avatar_url) == ("Nova", "https://example.com/nova.png")
    assert (host.persona_id, host.is_impersonation, host.impersonated_user_id) == ("p7", True, "u2")


@pytest.mark.parametrize("runner", ["inline", "thread"])
async def test_a_running_tool_sees_changes_to_the_host_object(runner: Any) -> None:
    bot = a_bot()
    started, release = asyncio.Event(), asyncio.Event()

    async def read(ctx: ToolContext) -> list[object]:
        """Read the host's lists twice."""
        before = list(ctx.extra.context_items)  # type: ignore[attr-defined]
        started.set()
        await release.wait()
        return [before, ctx.extra.context_items, ctx.extra.message_ids]  # type: ignore[attr-defined]

    async with Engine([tool(effect="none", runner=runner)(read)]) as engine:
        task = asyncio.create_task(said(engine, call("read"), Scope(extra=bot)))
        await started.wait()
        bot.context_items.append("second")
        bot.message_ids["2"] = "two"
        release.set()
        result = await task
    assert result.structured == [["first"], ["first", "second"], {"1": "one", "2": "two"}]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_show_kill_hint_is_true_from_iteration_20(runner: str) -> None:
    async with Engine([run_by(notices, runner)]) as engine:
        told: list[Any] = [(await said(engine, call("notices"), Scope(iteration=number))).structured for number in (0, 19, 20, 35)]
    assert [one["show_kill_hint"] for one in told] == [False, False, True, True]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_progress_notices_are_suppressed_if_errors_are_not_surfaced(runner: str) -> None:
    async with Engine([run_by(notices, runner)]) as engine:
        told: list[Any] = [(await said(engine, call("notices"), Scope(surface_errors=surface))).structured for surface in (True, False)]
    assert [one["suppress_progress_notices"] for one in told] == [False, True]


async def test_the_abort_signal_of_a_tool_lasts_for_the_turn() -> None:
    """Two messages of one turn share one signal; the next turn gets a new one."""
    seen: list[Any] = []

    @tool(effect="none")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx.signal)
        return "seen"

    async with Engine([look]) as engine:
        for iteration in range(2):
            await said(engine, call("look"), Scope(conversation="c", iteration=iteration))
        engine.control.end_turn("c")
        await said(engine, call("look"), Scope(conversation="c", turn=1))
        assert seen[0] is seen[1]
        assert seen[2] is engine.control.signal("c")
        assert seen[2] is not seen[0]


async def test_a_kill_fires_the_abort_signal_of_every_call_of_a_message() -> None:
    seen: dict[str, Any] = {}
    running = asyncio.Event()

    @tool(effect="none")
    async def wait(name: str, ctx: ToolContext) -> None:
        """Wait."""
        seen[name] = ctx.signal
        if len(seen) == 2:
            running.set()
        await asyncio.Event().wait()

    async with Engine([wait]) as engine:
        message = asyncio.create_task(engine.call_many([call("wait", name="a"), call("wait", name="b")], Scope(conversation="c")))
        await running.wait()
        engine.control.kill("c", "enough")
        outcomes = await message
    assert [type(outcome) for outcome in outcomes] == [Aborted, Aborted]
    assert [seen[name].reason for name in "ab"] == ["enough", "enough"]


class HangingServer:
    """A server that accepts a connection, reads the request, never answers, and records when the client disconnects."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def __aenter__(self) -> HangingServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        await reader.read()
        self.left.set()
        writer.close()


async def test_a_kill_cancels_the_http_request_of_a_tool_that_uses_its_signal() -> None:
    """The tool runs in a thread, so only the abort signal can cancel its request."""

    @tool(effect="none")
    def fetch(port: int, ctx: ToolContext) -> str:
        """Fetch."""
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.connect()
        ctx.signal.on_abort(lambda: connection.sock.shutdown(2))
        try:
            connection.request("GET", "/")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    async with HangingServer() as server, Engine([fetch]) as engine:
        task = asyncio.create_task(engine.call(call("fetch", port=server.port), Scope(conversation="c")))
        await asyncio.wait_for(server.asked.wait(), PATIENCE_S)
        engine.control.kill("c")
        assert isinstance(await task, Aborted)
        await asyncio.wait_for(server.left.wait(), PATIENCE_S)


async def test_a_kill_closes_the_request_of_the_built_in_fetch_tool() -> None:
    async with HangingServer() as server, Engine([fetch_tool(allow=[f"127.0.0.1:{server.port}"])]) as engine:
        raw = call("fetch_url", url=f"http://127.0.0.1:{server.port}/")
        task = asyncio.create_task(engine.call(raw, Scope(conversation="c")))
        await asyncio.wait_for(server.asked.wait(), PATIENCE_S)
        engine.control.kill("c")
        assert isinstance(await task, Aborted)
        await asyncio.wait_for(server.left.wait(), PATIENCE_S)


CONTEXT = {
    *(
        "actor",
        "asking_human",
        "attempt",
        "call",
        "call_id",
        "call_sync",
        "conversation",
        "deadline",
        "extra",
        "idempotency_key",
        "locale",
        "principal",
    ),
    *(
        "may_visit",
        "own_files",
        "progress",
        "provider",
        "refusal",
        "scope",
        "show_kill_hint",
        "signal",
        "streaming",
        "suppress_progress_notices",
        "tool",
        "uid",
    ),
    "workspace",
}
PLUMBING = {"for_thread", "human_time", "loop", "nested", "policies", "report"}


@pytest.mark.process
async def test_the_context_has_the_same_attributes_for_every_runner() -> None:
    """The context is one contract for all tools: an attribute added for one runner must exist for every runner."""
    for runner in RUNNERS:
        async with Engine([run_by(facts, runner)]) as engine:
            seen: Any = (await said(engine, call("facts"))).structured
        assert set(seen["names"]) == CONTEXT | PLUMBING, runner


async def test_the_environment_sets_the_deadline_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    @tool(effect="none")
    async def look(ctx: ToolContext) -> float:
        """Look."""
        return ctx.deadline - clock.monotonic()

    for given, expected in ((None, 300), ("5", 10), ("-3", 10), ("450000", 450)):
        if given is None:
            monkeypatch.delenv("TOOL_EXECUTION_TIMEOUT_MS", raising=False)
        else:
            monkeypatch.setenv("TOOL_EXECUTION_TIMEOUT_MS", given)
        async with Engine([look], clock=clock) as engine:
            left = (await said(engine, call("look"))).structured
        assert left == expected, given


async def test_an_explicit_timeout_is_not_clamped() -> None:
    @tool(effect="none")
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async with Engine([hang], timeout_s=0.02, clock=ManualClock()) as engine:
        assert result_of(await engine.call(call("hang"))).failure_class == "timeout"


async def test_a_call_in_tool_parameters_form_runs_for_its_conversation_and_actor() -> None:
    """The payload `{"tool", "parameters", "reasoning"}`, for a conversation and an actor, makes one call and returns one result."""

    class Say(Tool):
        name = "say"
        description = "Say something."
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        category = "terminal"

        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            return {"success": True, "data": f"{actor} says {params['text']}"}

    async with Engine([Say()]) as engine:
        raw = RawCall.from_dict({"tool": "say", "parameters": {"text": "hello"}, "reasoning": "to greet"})
        result = await said(engine, raw, Scope(conversation="session-1", actor="ann"))
        current = engine.current_tool_call("session-1")
    assert result.data == "ann says hello"
    assert current is not None
    assert current.uid == result.uid


async def test_the_tool_and_reasoning_of_a_call_are_logged_at_info(caplog: pytest.LogCaptureFixture) -> None:
    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine([look]) as engine:
        with caplog.at_level(logging.INFO, logger="callgate"):
            await said(engine, RawCall.from_dict({"tool": "look", "reasoning": "to know what is there"}))
    told = [record for record in caplog.records if "to know what is there" in record.getMessage()]
    assert [(record.levelno, "look" in record.getMessage()) for record in told] == [(logging.INFO, True)]


async def test_the_duration_is_logged_at_info_in_milliseconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()

    @tool(effect="none")
    async def nap() -> str:
        """Take a while."""
        clock.advance(0.25)
        return "rested"

    async with Engine([nap], clock=clock) as engine:
        with caplog.at_level(logging.INFO, logger="callgate"):
            await said(engine, call("nap"))
    found = [(r.levelno, re.fullmatch(r"Function call completed: nap \((\d+)ms\)", r.getMessage())) for r in caplog.records]
    ((level, match),) = [(level, match) for level, match in found if match]
    assert level == logging.INFO
    assert int(match[1]) == 250


@pytest.mark.parametrize("end", ["restart", "stop", "kill", "failure"])
async def test_the_duration_is_logged_for_every_outcome_of_a_call(end: str, caplog: pytest.LogCaptureFixture) -> None:
    """Requirement A52: the duration is logged for a result that restarts the context, is discarded by a stop, or is a failure."""

    @tool(effect="none")
    async def nap() -> dict[str, object]:
        """Take a while."""
        if end in ("stop", "kill"):
            getattr(engine.control, end)("c")
        return {"success": end != "failure", "data": {"type": "context_restart_dream"}}

    async def restart(data: object) -> bool:
        return True

    async with Engine([nap], restart=restart) as engine:
        with caplog.at_level(logging.INFO, logger="callgate"):
            outcome = await engine.call(call("nap"), Scope(conversation="c"))
    kinds_of_end: dict[str, type] = {"restart": Restarted, "stop": Aborted, "kill": Aborted, "failure": Answered}
    assert type(outcome) is kinds_of_end[end]
    lines = [record for record in caplog.records if re.fullmatch(r"Function call completed: nap \(\d+ms\)", record.getMessage())]
    assert [record.levelno for record in lines] == [logging.INFO]
