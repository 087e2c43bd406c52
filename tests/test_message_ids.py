"""A call without a key is known by what its provider makes unique: the id of its message, and its own id in that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, UsageError
from callgate.agent import Agent
from callgate.calls import ToolResult
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import bodies, call, result_of, said


def completion(id: str, to: str = "ann") -> dict[str, Any]:
    """A provider's answer; each one's first call is `call_0`."""
    function = {"name": "pay", "arguments": f'{{"to": "{to}"}}'}
    return {"id": id, "choices": [{"message": {"tool_calls": [{"id": "call_0", "type": "function", "function": function}]}}]}


async def answered(engine: Engine, answer: dict[str, Any], **scope: Any) -> list[ToolResult]:
    """A loop that does not count its messages."""
    raws = [RawCall.from_openai(item) for item in answer["choices"][0]["message"]["tool_calls"]]
    return [result_of(outcome) for outcome in await engine.call_many(raws, Scope(run="r", message_id=answer["id"], **scope))]


async def test_calls_of_two_messages_are_two_calls_though_nobody_counts_iterations(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        results = [*await answered(engine, completion("chatcmpl-1")), *await answered(engine, completion("chatcmpl-2"))]
    assert [result.metadata.replayed for result in results] == [False, False]
    assert ledger.lines() == ["ann", "ann"]


async def test_a_message_handed_in_again_is_recognised_by_its_id_in_another_process_too(tmp_path: Path, ledger: Ledger) -> None:
    """The host counts anew after it was started again."""
    replayed = []
    for iteration in (3, 0):
        async with Engine([paying(ledger)], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
            (result,) = await answered(engine, completion("chatcmpl-1"), iteration=iteration)
            replayed.append(result.metadata.replayed)
    assert (replayed, ledger.lines()) == ([False, True], ["ann"])


async def test_the_same_call_twice_in_one_message_is_one_call(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        scope = Scope(message_id="chatcmpl-1")
        outcomes = await engine.call_many([call("pay", id="call_0", to="ann"), call("pay", id="call_0", to="ann")], scope)
    assert {result_of(outcome).text.splitlines()[0] for outcome in outcomes} == {"paid ann"}
    assert ledger.lines() == ["ann"]


async def test_a_message_id_is_part_of_the_record(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        await answered(engine, completion("chatcmpl-1"))
        assert bodies(engine, "call.received")[0]["scope"] == {"message_id": "chatcmpl-1"}


async def test_a_host_that_names_no_message_is_told_that_it_got_a_stored_result(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        first = await said(engine, call("pay", id="call_0", to="ann"), Scope(run="r"))
        again = await said(engine, call("pay", id="call_0", to="ann"), Scope(run="r"))
        counted = [await said(engine, call("pay", id="call_0", to="bob"), Scope(run="r", iteration=1)) for _ in range(2)]
    (note,) = again.metadata.notes
    assert note.text.startswith(f"{first.uid} had the same run, id, tool and arguments")
    assert "give Scope.message_id, or count Scope.iteration" in note.text
    assert (again.text, counted[1].metadata.notes) == (first.text, ())


async def test_a_message_id_that_is_no_text_is_refused(ledger: Ledger) -> None:
    scope: Any = {"message_id": 7}
    async with Engine([paying(ledger)]) as engine:
        with pytest.raises(UsageError, match=r"Scope\.message_id is 7; it must be text"):
            await engine.call(call("pay", to="ann"), Scope(**scope))


async def test_an_agent_counts_its_messages_and_ignores_the_hosts_message_id(ledger: Ledger) -> None:
    model = Script(*(says(model_call("pay", {"to": "ann"}, id="call_0")) for _ in range(2)), says("Paid twice."))
    async with Engine([paying(ledger)]) as engine, Agent(model, engine) as agent:
        await agent.run("Pay ann twice.", scope=Scope(message_id="chatcmpl-1"))
    assert ledger.lines() == ["ann", "ann"]


async def test_the_log_warns_once_that_a_response_without_an_id_may_have_lost_an_effect(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Some self-made servers send no id, and count their calls anew in each message."""
    anonymous = {key: value for key, value in completion("").items() if key != "id"}
    async with Engine([paying(ledger)]) as engine:
        for run in ("a", "a", "a", "b"):
            await engine.respond(anonymous, Scope(run=run))
    (warning,) = [record.message for record in caplog.records]
    assert "(pay) was not run" in warning
    assert "give Scope.message_id" in warning
    assert ledger.lines() == ["ann", "ann"]


async def test_a_message_with_an_id_that_is_handed_in_again_is_not_warned_about(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([paying(ledger)]) as engine:
        for _ in range(2):
            await engine.respond(completion("chatcmpl-1"), Scope(run="a"))
    assert (caplog.records, ledger.lines()) == ([], ["ann"])
