"""One call through the whole route, made through the public interface."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path

import pytest

from callgate import Aborted, Engine, Limits, RawCall, Scope, SqliteJournal, Tool, ToolContext, tool
from callgate.errors import FAILURE_CLASSES, UsageError
from callgate.messages import fallback_call, function_response, history_entry, openai_message
from tests.engine_calls import bodies, call, kinds, result_of, said
from tests.waiting import PATIENCE_S, threads_since


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="none")
async def find(text: str) -> list[str]:
    """Find lines."""
    return []


@tool(effect="none")
async def broken() -> None:
    """Fail."""
    raise ValueError("no such account")


async def test_a_valid_call_returns_one_result_with_status_text_and_metadata() -> None:
    async with Engine([add]) as engine:
        result = await said(engine, call("add", id="call_1", a=2, b=3))
    assert (result.id, result.name, result.status, result.success) == ("call_1", "add", "ok", True)
    assert result.structured == 5
    assert result.text == "5"
    assert (result.metadata.bytes, result.metadata.truncated, result.metadata.mime) == (1, False, "application/json")
    assert result.error is None
    assert result.failure_class is None


async def test_a_failure_has_the_same_fields_and_a_reason() -> None:
    async with Engine([broken]) as engine:
        result = await said(engine, call("broken", id="x"))
    assert (result.id, result.status, result.failure_class, result.code) == ("x", "error", "exception", "tool_raised")
    assert "no such account" in str(result.reason)
    assert "Traceback" not in result.text
    assert json.loads(result.text)["error"] == result.error


async def test_results_of_every_outcome_have_the_same_fields() -> None:
    async with Engine([add, broken]) as engine:
        results = [
            await said(engine, call("add", a=1, b=2)),
            await said(engine, call("add", a="no", b=2)),
            await said(engine, call("broken")),
            await said(engine, call("unknown_thing")),
        ]
    assert len({type(result).__struct_fields__ for result in results}) == 1
    assert {result.failure_class for result in results[1:]} <= FAILURE_CLASSES


async def test_an_empty_search_result_is_a_success() -> None:
    async with Engine([find]) as engine:
        result = await said(engine, call("find", text="x"))
    assert result.success
    assert result.text == "[]"


async def test_the_result_for_an_unknown_tool_names_a_close_tool() -> None:
    async with Engine([add, find]) as engine:
        result = await said(engine, call("ad", a=1, b=2))
    assert (result.failure_class, result.code) == ("unknown_tool", "unknown_tool")
    assert "add" in result.text


async def test_a_call_without_a_name_aborts_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([add]) as engine:
        with caplog.at_level(logging.WARNING, logger="callgate"):
            outcome = await engine.call(RawCall(name="", arguments="{}"))
        assert isinstance(outcome, Aborted)
        assert outcome.status == "error"
        assert kinds(engine) == ["call.received", "call.aborted"]
    assert "aborted" in caplog.text


async def test_every_call_records_its_events_with_causal_parents() -> None:
    async with Engine([add]) as engine:
        result = await said(engine, call("add", a=1, b=1))
        events = list(engine.journal.read(call=result.uid))
    assert [event.kind for event in events] == ["call.received", "call.started", "call.completed"]
    assert [event.parents for event in events[1:]] == [(event.position,) for event in events[:-1]]
    assert [event.seq for event in events] == [1, 2, 3]


async def test_the_reasoning_and_duration_of_a_call_are_logged_at_info(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([add]) as engine:
        with caplog.at_level(logging.INFO, logger="callgate"):
            await said(engine, RawCall(name="add", arguments='{"a": 1, "b": 2}', reasoning="to know the sum"))
    assert "add - to know the sum" in caplog.text
    assert "Function call completed: add (" in caplog.text
    assert "ms)" in caplog.text


@pytest.mark.parametrize("allowed", [None, frozenset({"add"})], ids=["unknown", "not offered"])
async def test_the_reasoning_for_an_unknown_or_blocked_tool_is_logged(
    allowed: frozenset[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The reasoning is logged before the lookup, whatever becomes of the call."""
    scope = Scope(deliberate=allowed is not None, allowed_tools=allowed)
    async with Engine([add, find]) as engine:
        name = "fetch" if allowed is None else "find"
        with caplog.at_level(logging.INFO, logger="callgate"):
            result = await said(engine, RawCall.from_dict({"tool": name, "reasoning": "to know more"}), scope)
    assert not result.success
    (line,) = [record for record in caplog.records if "to know more" in record.getMessage()]
    assert (line.levelno, line.getMessage()) == (logging.INFO, f"Tool call: {name} - to know more")


@pytest.mark.parametrize("beside", ["function", "item"])
async def test_the_reasoning_of_an_openai_call_is_kept(beside: str) -> None:
    function: dict[str, object] = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    item: dict[str, object] = {"id": "1", "type": "function", "function": function}
    (function if beside == "function" else item)["reasoning"] = "to know the sum"
    raw = RawCall.from_openai(item)
    async with Engine([add]) as engine:
        await said(engine, raw)
        assert [body["reasoning"] for body in bodies(engine, "call.received")] == ["to know the sum"]
    assert json.loads(str(fallback_call(raw)["content"])) == {"tool": "add", "parameters": {"a": 1, "b": 2}, "reasoning": "to know the sum"}


async def test_a_call_written_as_tool_and_parameters_is_understood() -> None:
    async with Engine([add]) as engine:
        raw = RawCall.from_dict({"tool": "add", "parameters": {"a": 1, "b": 2}, "reasoning": "sum"})
        result = await said(engine, raw)
    assert result.structured == 3
    assert raw.reasoning == "sum"


async def test_top_level_parameters_are_lifted_with_a_note_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([add]) as engine:
        with caplog.at_level(logging.WARNING, logger="callgate"):
            result = await said(engine, RawCall.from_dict({"tool": "add", "a": 1, "b": 2}))
    assert result.structured == 3
    assert [note.kind for note in result.metadata.notes] == ["lifted"]
    assert "top level" in caplog.text
    raw = RawCall.from_dict({"tool": "add", "parameters": {}, "a": 1, "b": 2})
    assert json.loads(str(fallback_call(raw)["content"]))["parameters"] == {"a": 1, "b": 2}
    assert history_entry(raw, result).function_call["args"] == {"a": 1, "b": 2}
    raw = RawCall.from_dict({"tool": "add", "parameters": {"a": 1}, "b": 2})
    assert history_entry(raw, result).function_call["args"] == {"a": 1}


async def test_missing_parameters_and_reasoning_default_to_empty() -> None:
    @tool(effect="none")
    async def ping() -> str:
        """Ping."""
        return "pong"

    async with Engine([ping]) as engine:
        raw = RawCall.from_dict({"tool": "ping"})
        assert (raw.reasoning, (await said(engine, raw)).text) == ("", "pong")


async def test_an_openai_tool_call_runs_and_gets_an_openai_tool_message() -> None:
    item = {"id": "call_9", "type": "function", "function": {"name": "add", "arguments": '{"a": 20, "b": 22}'}}
    async with Engine([add]) as engine:
        result = await said(engine, RawCall.from_openai(item))
    assert openai_message(result) == {"role": "tool", "tool_call_id": "call_9", "content": "42"}


async def test_calls_of_a_message_cut_by_length_never_run(ledger: object) -> None:
    ran = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    item = {"id": "c", "function": {"name": "pay", "arguments": '{"amount": 1}'}}
    async with Engine([pay]) as engine:
        result = await said(engine, RawCall.from_openai(item, finish_reason="length"))
    assert result.failure_class == "truncated_arguments"
    assert ran == []


async def test_the_function_response_carries_data_or_an_error_object() -> None:
    class Look(Tool):
        name = "look"
        description = "Look around."
        parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
        category = "safe_chain"

        async def execute(self, actor: str, **params: object) -> dict[str, object]:
            found = params["at"] == "door"
            picture = {"mime": "image/png"}
            return (
                {"success": found, "data": {"seen": "a door"}, "image_metadata": picture} if found else {"success": False, "error": "dark"}
            )

    async with Engine([Look()]) as engine:
        scope = Scope(actor="ann")
        raw = call("look", at="door")
        seen, dark = await said(engine, raw, scope), await said(engine, call("look", at="cellar"), scope)
    assert function_response(seen) == {"name": "look", "response": {"result": {"seen": "a door"}}}
    assert function_response(dark)["name"] == "look"
    assert "dark" in str(function_response(dark))
    entry = history_entry(raw, seen)
    assert entry.function_call["name"] == entry.function_response["name"] == "look"
    assert entry.image_metadata == {"mime": "image/png"}
    assert (seen.failure_class, dark.failure_class) == (None, "tool_declared")


async def test_a_tool_context_carries_the_fields_of_the_scope() -> None:
    seen: list[ToolContext] = []

    @tool(effect="none")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx)
        return ctx.locale

    live = {"webhook": object(), "context_items": [1]}
    scope = Scope(
        conversation="c1",
        principal="p",
        actor="ann",
        workspace="/w",
        locale="de",
        provider="openai",
        iteration=20,
        surface_errors=False,
        extra=live,
    )
    async with Engine([look]) as engine:
        await said(engine, call("look", id="model-id"), scope)
        context = seen[0]
        assert (context.conversation, context.principal, context.actor, context.workspace) == ("c1", "p", "ann", "/w")
        assert (context.locale, context.provider, context.call_id, context.attempt) == ("de", "openai", "model-id", 1)
        assert context.extra is live
        assert context.suppress_progress_notices
        assert context.show_kill_hint
        assert context.signal is engine.control.signal("c1")
        await said(engine, call("look"), Scope(iteration=19))
    assert not seen[1].show_kill_hint
    assert not seen[1].suppress_progress_notices


async def test_a_context_restart_leaves_no_result() -> None:
    taken: list[object] = []

    @tool(effect="none")
    async def watch(url: str) -> dict[str, str]:
        """Watch a video."""
        return {"type": "context_restart_video", "item": url}

    async def restart(data: object) -> bool:
        taken.append(data)
        return True

    async with Engine([watch, add], restart=restart) as engine:
        outcome = await engine.call(call("watch", url="u"))
        assert type(outcome).__name__ == "Restarted"
        assert kinds(engine)[-1] == "call.restarted"
        assert result_of(await engine.call(call("add", a=1, b=1))).success
    assert taken == [{"type": "context_restart_video", "item": "u"}]


async def test_successes_count_as_activity_and_failures_do_not() -> None:
    async with Engine([add, broken]) as engine:
        await said(engine, call("add", a=1, b=1))
        await said(engine, call("broken"))
        await said(engine, call("add", a="x", b=1))
        assert engine.activity_since_wake == 1


async def test_activity_is_counted_per_conversation_and_per_engine() -> None:
    """Only successes count, and cached results do not."""

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def look(at: str) -> str:
        """Look."""
        return at

    async with Engine([look, broken]) as engine, Engine([look]) as other:
        for conversation, at in (("a", "door"), ("a", "wall"), ("b", "roof"), ("b", "roof"), ("", "sky")):
            await said(engine, call("look", at=at), Scope(conversation=conversation))
        await said(engine, call("broken"), Scope(conversation="b"))

        def counts() -> tuple[int, int, int]:
            return engine.activity("a"), engine.activity("b"), engine.activity_since_wake

        assert (counts(), other.activity_since_wake, other.activity("a")) == ((2, 1, 4), 0, 0)
        engine.wake("a")
        assert counts() == (0, 1, 4)
        await said(engine, call("look", at="floor"), Scope(conversation="a"))
        engine.activity_since_wake = 0
        assert counts() == (1, 1, 0)
        engine.wake()
        assert counts() == (0, 0, 0)


async def test_activity_is_kept_for_the_most_recently_active_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate._pipeline.activity.ACTIVE_CONVERSATIONS", 2)
    async with Engine([add]) as engine:
        for conversation in ("a", "b", "a", "c"):
            await said(engine, call("add", a=1, b=1), Scope(conversation=conversation))
        assert [engine.activity(conversation) for conversation in "abc"] == [2, 0, 1]
        assert engine.activity_since_wake == 4


async def test_the_current_tool_call_is_the_latest_success_of_the_conversation() -> None:
    async with Engine([add, broken]) as engine:
        assert engine.current_tool_call("c") is None
        await said(engine, call("add", id="one", a=1, b=1), Scope(conversation="c"))
        await said(engine, call("broken", id="two"), Scope(conversation="c"))
        current = engine.current_tool_call("c")
    assert current is not None
    assert current.id == "one"


async def test_the_current_tool_call_has_its_final_parameters_and_reasoning(tmp_path: Path) -> None:
    """The parameters are those after coercion. A repeated call has its own reasoning."""

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    scope = Scope(conversation="c", run="r")
    raws = [
        RawCall.from_dict({"id": "1", "tool": "add", "a": "1", "b": 2, "reasoning": "to know the sum"}),
        RawCall.from_dict({"id": "2", "tool": "pay", "parameters": {"amount": 5}, "reasoning": "it is due"}),
        RawCall(name="add", id="3", arguments='{"a": 7, "b": 8}'),
        RawCall.from_dict({"id": "2", "tool": "pay", "parameters": {"amount": 5}, "reasoning": "it is still due"}),
    ]
    seen = []
    async with Engine([add, pay], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        for raw in raws:
            await said(engine, raw, scope)
            current = engine.current_tool_call("c")
            assert current is not None
            seen.append((current.id, current.name, current.data, current.parameters, current.reasoning))
    assert seen == [
        ("1", "add", 3, {"a": 1, "b": 2}, "to know the sum"),
        ("2", "pay", "paid 5", {"amount": 5}, "it is due"),
        ("3", "add", 15, {"a": 7, "b": 8}, ""),
        ("2", "pay", "paid 5", {"amount": 5}, "it is still due"),
    ]
    async with Engine(journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        assert engine.current_tool_call("c") == current


async def test_call_sync_is_refused_on_a_running_event_loop() -> None:
    engine = Engine([add])
    with pytest.raises(UsageError, match="event loop that runs here"):
        engine.call_sync(call("add", a=1, b=2))
    await engine.close()


def test_call_sync_never_hangs_while_the_engine_closes() -> None:
    """Each call returns or raises, and no thread remains."""
    engine, answers, before = Engine([add]), list[str](), set(threading.enumerate())

    def keep_calling() -> None:
        while True:
            try:
                answers.append(result_of(engine.call_sync(call("add", a=1, b=2))).status)
            except UsageError as error:
                answers.append(str(error))
                return

    callers = [threading.Thread(target=keep_calling, daemon=True) for _ in range(8)]
    for caller in callers:
        caller.start()
    engine.close_sync()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert not any(caller.is_alive() for caller in callers)
    assert {answer for answer in answers if answer != "ok"} <= {"This engine is closed. Make a new one.", "error"}
    assert not threads_since(before)


def test_call_sync_runs_on_an_event_loop_of_the_engine() -> None:
    engine = Engine([add])
    try:
        assert result_of(engine.call_sync(call("add", a=1, b=2))).structured == 3
    finally:
        engine.close_sync()


async def test_engines_in_one_process_share_nothing() -> None:
    async with Engine([add]) as one, Engine([find]) as other:
        assert (await said(one, call("add", a=1, b=2))).success
        assert not (await said(other, call("add", a=1, b=2))).success
        assert len(kinds(one)) == 3


async def test_closing_an_engine_from_another_event_loop_is_refused() -> None:
    """An engine belongs to one event loop."""
    async with Engine([add]) as engine:
        assert (await said(engine, call("add", a=1, b=2))).success
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, engine.close())
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(engine.close_sync)
        assert (await said(engine, call("add", a=1, b=2))).success


async def test_a_closed_engine_refuses_calls() -> None:
    engine = Engine([add])
    await engine.close()
    await engine.close()
    with pytest.raises(UsageError, match="closed"):
        await engine.call(call("add", a=1, b=2))


async def test_a_call_does_not_run_if_the_journal_cannot_be_written() -> None:
    ran = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    async with Engine([pay]) as engine:
        engine.journal.append = _full  # type: ignore[method-assign, assignment]
        result = await said(engine, call("pay"))
    assert result.failure_class == "record_failed"
    assert ran == []


def _full(draft: object) -> object:
    raise OSError("no space left")


async def test_the_received_event_keeps_the_arguments_as_sent() -> None:
    async with Engine([add], limits=Limits()) as engine:
        await said(engine, RawCall(name="add", arguments='{"a": 1, "b": 2 }', id="i", origin="openai.chat"))
        received = bodies(engine, "call.received")[0]
    assert (received["arguments"], received["id"], received["origin"]) == ('{"a": 1, "b": 2 }', "i", "openai.chat")


async def test_a_call_without_an_id_gets_a_unique_id_in_result_record_and_context() -> None:
    seen: list[str] = []

    @tool(effect="none")
    async def look(ctx: ToolContext) -> str:
        """Record the id of the call."""
        seen.append(ctx.call_id)
        return "seen"

    async with Engine([look, broken], limits=Limits(calls_per_message=3)) as engine:
        scope = Scope(conversation="c")
        outcomes = [
            await engine.call(RawCall(name="look"), scope),
            await engine.call(RawCall.from_dict({"tool": "look"}), scope),
            await engine.call(RawCall.from_openai({"function": {"name": "broken", "arguments": "{}"}}), scope),
            await engine.call(RawCall(name="unknown"), scope),
            *await engine.call_many([RawCall(name="look") for _ in range(5)], scope),
        ]
        results = [result_of(outcome) for outcome in outcomes]
        recorded = [body["id"] for body in bodies(engine, "call.received")]
    ids = [result.id for result in results]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert [openai_message(result)["tool_call_id"] for result in results] == ids
    assert recorded == ids[:-2]  # for calls above the message limit, only their number is recorded
    assert seen == [result.id for result in results if result.success]


async def test_a_call_id_from_the_model_is_kept_unchanged() -> None:
    async with Engine([add]) as engine:
        first, second = [await said(engine, call("add", id="call_1", a=1, b=2)) for _ in range(2)]
    assert (first.id, second.id) == ("call_1", "call_1")
