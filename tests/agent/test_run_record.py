"""The record of an agent's run: its phases with messages and calls. The run can be described and resumed from it alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from msgspec import structs

from callgate import Engine, Hook, Limits, Scope, SqliteJournal, Tool, ToolContext, Verified, after_call, tool
from callgate.agent import Agent, Compaction, RunResult, Settings, keep_last
from callgate.agent.recorded_run import load_run
from callgate.calls import Text
from callgate.errors import RunHeld, UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.messages import AssistantMessage, Message, UserMessage
from callgate.models.model_events import Usage
from callgate.models.wire.request import ToolSpec
from callgate.protocols import Journal
from callgate.stage_types import Checked, ValidatedCall
from callgate.testing import ManualClock
from tests.agent.scripted_model import Gate, Script, call, says, tool_texts
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call as raw_call
from tests.host_fakes import Asks, Hider

RUN = "the-run"
IN_RUN = Scope(run=RUN)
PAY = says("Paying.", call("pay", {"to": "ann"}, id="1"))


def shop(ledger: Ledger, **settings: Any) -> list[Tool]:
    @tool(effect="none")
    async def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    return [paying(ledger, **settings), look]


def of_run(journal: Journal, *kinds: str, run: str = RUN) -> list[Event]:
    return [event for event in journal.read(run=run) if not kinds or event.kind in kinds]


def body(event: Event) -> dict[str, Any]:
    decoded = json.loads(event.body)
    assert isinstance(decoded, dict)
    return decoded


def same(a: Sequence[Message], b: Sequence[Message]) -> bool:
    """Return whether two conversations are equal. A text and a single text part are equal."""
    return list(a) == list(b)


# The record of a run


async def test_a_run_is_recorded_with_its_phases_messages_and_calls(ledger: Ledger) -> None:
    """Requirement D34: the phase lists the call and is its parent event; the end of the call is the parent of the next phase."""
    both = says("Both.", call("look", {"what": "a"}, id="1"), call("pay", {"to": "ann"}, id="2", position=1), usage=Usage(input_tokens=7))
    async with Agent(Script(both, says("Done.")), tools=shop(ledger)) as agent:
        result = await agent.run("Pay ann.", scope=IN_RUN)
        events = of_run(agent.engine.journal)
    assert result.completed
    loop = [event for event in events if event.kind.startswith(("run.", "phase."))]
    assert [event.kind for event in loop] == [
        "run.began",
        "phase.began",
        "phase.answered",
        "phase.executed",
        "phase.began",
        "phase.answered",
        "run.ended",
    ]
    began, deliberates, answered, executed, again, _, ended = loop
    assert body(began)["task"]["content"] == "Pay ann."
    assert set(body(began)["tools"]) == {"look", "pay"}
    assert body(began)["model"] == "scripted:script-1"
    assert body(deliberates)["phase"] == "deliberate"
    assert [part["type"] for part in body(answered)["message"]["parts"]] == ["text", "tool_call", "tool_call"]
    assert (body(answered)["closed"], body(answered)["usage"]["input_tokens"]) == (["sealed", "sealed"], 7)
    uids = [event.call for event in events if event.kind == "call.received"]
    assert body(executed)["calls"] == uids
    received = {event.call: event.parents for event in events if event.kind == "call.received"}
    assert {parents[0] for parents in received.values()} <= {deliberates.position, answered.position}
    ends = [event.position for event in events if event.kind == "call.completed"]
    assert executed.parents == tuple(sorted(ends))
    assert again.parents == (executed.position,)
    assert (body(ended)["status"], body(ended)["text"]) == ("completed", "Done.")


async def test_an_executed_phase_has_the_ends_of_its_calls_as_parents_in_journal_order() -> None:
    """Calls may end in any order. A call beyond the limit per message has no events of its own and is no parent."""
    second = asyncio.Event()

    @tool(effect="none")
    async def look(what: str) -> str:
        """Look; the first waits for the second."""
        if what == "a":
            await second.wait()
        second.set()
        return f"saw {what}"

    looks = says(*(call("look", {"what": what}, id=what, position=place) for place, what in enumerate("abc")))
    async with Agent(Script(looks, says("Done.")), Engine([look], limits=Limits(calls_per_message=2))) as agent:
        await agent.run("Look.", scope=IN_RUN)
        (executed,) = of_run(agent.engine.journal, "phase.executed")
        ends = [event for event in of_run(agent.engine.journal, "call.completed") if event.call.startswith(RUN)]
    assert [event.call.rpartition("/")[2] for event in ends] == ["1", "0"]
    assert executed.parents == tuple(event.position for event in ends)


async def test_a_message_is_on_disk_before_its_first_call_has_an_effect(tmp_path: Path) -> None:
    path, seen = tmp_path / "journal.db", list[list[str]]()

    @tool
    async def act() -> str:
        """Look into the file from outside while running."""
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        seen.append([row[0] for row in connection.execute("SELECT kind FROM events ORDER BY position")])
        connection.close()
        return "done"

    async with Engine([act], journal=SqliteJournal(path)) as engine, Agent(Script(says(call("act")), says("Done.")), engine) as agent:
        await agent.run("Act.")
    assert "phase.answered" in seen[0]
    assert seen[0].index("phase.answered") < seen[0].index("call.started")


async def test_a_reflection_is_recorded_as_its_own_phase_and_not_in_the_conversation(ledger: Ledger) -> None:
    async with Agent(Script(says("Hm."), says("Hello.")), tools=shop(ledger)) as agent:
        await agent.run("Think.", conversation="c", scope=Scope(run="thought"), reflect=True)
        await agent.run("Hello?", conversation="c", scope=IN_RUN)
        assert [body(event)["phase"] for event in of_run(agent.engine.journal, "phase.began", run="thought")] == ["reflect"]
        assert [
            m.content for m in load_run(agent.engine.journal, agent.engine.blobs, RUN).history.messages if isinstance(m, UserMessage)
        ] == ["Hello?"]


async def test_a_large_message_is_stored_as_a_blob_and_loaded_again(ledger: Ledger) -> None:
    long = "x" * 4_000
    async with Engine(shop(ledger), limits=Limits(result_inline_bytes=1_000)) as engine, Agent(Script(says(long)), engine) as agent:
        result = await agent.run("Write.", scope=IN_RUN)
        (event,) = of_run(engine.journal, "phase.answered")
        assert set(body(event)) == {"blob", "bytes"}
        assert same(load_run(engine.journal, engine.blobs, RUN).history.messages, result.messages)


async def test_redacted_values_are_nowhere_in_the_record_of_a_run(ledger: Ledger) -> None:
    """The record lists calls that lost a value, so that resume never runs them from the record."""
    secret = says("It is hunter2.", call("look", {"what": "hunter2"}, id="1"), call("look", {"what": "b"}, id="2", position=1))
    async with Engine(shop(ledger), redactor=Hider()) as engine, Agent(Script(secret, says("Done.")), engine) as agent:
        await agent.run("Say hunter2.", scope=IN_RUN)
        assert all(b"hunter2" not in event.body for event in engine.journal.read())
        assert body(of_run(engine.journal, "phase.answered")[0])["lost"] == [0]


async def test_a_run_that_cannot_be_recorded_fails_and_runs_no_call(ledger: Ledger) -> None:
    async with Engine(shop(ledger)) as engine, Agent(Script(PAY), engine) as agent:

        def full(*_: object) -> int:
            raise OSError("no space left")

        engine.journal.append = full  # type: ignore[method-assign, assignment]
        result = await agent.run("Pay.")
    assert (result.status, ledger.lines()) == ("failed", [])
    assert "no space left" in result.reason


# What the record restores


async def test_episodes_of_a_run_have_one_line_per_call(ledger: Ledger) -> None:
    """Requirement D35: a condensed form of call and result for later steps, one line per call."""
    long = says(
        call("look", {"what": "x" * 5_000}, id="1"), call("pay", {"to": "ann\nbob"}, id="2", position=1), call("none", id="3", position=2)
    )
    async with Agent(Script(long, says("Done.")), tools=shop(ledger)) as agent:
        await agent.run("Go.", scope=IN_RUN)
        remembered = agent.episodes(RUN)
        assert agent.episodes("another") == []
    assert [(one.tool, one.status) for one in remembered] == [("look", "ok"), ("pay", "ok"), ("none", "error")]
    assert all(len(one.line) < 400 and "\n" not in one.line for one in remembered)
    assert remembered[1].line.startswith("pay(to=")
    assert "paid ann" in remembered[1].line


async def test_episodes_of_a_run_contain_no_redacted_values(ledger: Ledger) -> None:
    engine = Engine(shop(ledger), redactor=Hider())
    async with engine, Agent(Script(says(call("look", {"what": "hunter2"})), says("Done.")), engine) as agent:
        await agent.run("Go.", scope=IN_RUN)
        assert ["hunter2" in one.line for one in agent.episodes(RUN)] == [False]


def conversations(ledger: Ledger) -> dict[str, tuple[Script, dict[str, Any]]]:
    twice = says(call("look", {"what": "a"}, id="x"), call("look", {"what": "b"}, id="x", position=1))
    looks = [says(call("look", {"what": "a"}, id=str(n))) for n in range(4)]
    return {
        "no calls": (Script(says("Hello.")), {}),
        "two rounds": (Script(PAY, says("And.", call("look", {"what": "b"})), says("Done.")), {}),
        "counts that no provider should give": (
            Script(
                says(call("look", {"what": "a"}), usage=Usage(input_tokens=0, output_tokens=-3, cached_tokens=-4)),
                says(call("look", {"what": "b"}), usage=Usage(input_tokens=-7, output_tokens=0, cached_tokens=0)),
                says("Done.", usage=Usage(input_tokens=5, output_tokens=6, cached_tokens=2)),
            ),
            {},
        ),
        "ids that come again": (Script(twice, twice, says("Done.")), {}),
        "hints of the loop": (Script(*looks, says("Enough.")), {}),
        "an exit call beside others": (
            Script(says("x", call("leave", {"why": "done"}, id="e"), call("pay", {"to": "bob"}, position=1)), says("Bye.")),
            {"exit_tools": [ToolSpec(name="leave", description="Leave.", schema={"type": "object"})]},
        ),
        "an answer of the wrong type": (Script(says("many"), says("7")), {"output": int}),
        "a history made shorter": (
            Script(says("a"), says("b"), says("c"), says("d")),
            {"compact": Compaction(compact=keep_last(2), at_tokens=1)},
        ),
    }


NAMES = tuple(conversations(Ledger(Path("nowhere"))))


@pytest.mark.parametrize("name", NAMES)
async def test_a_conversation_loaded_from_the_record_equals_the_original(name: str, ledger: Ledger) -> None:
    model, settings = conversations(ledger)[name]
    async with Agent(model, tools=shop(ledger), **settings) as agent:
        for turn in range(4 if name == "a history made shorter" else 1):
            result = await agent.run(f"Go {turn}.", conversation="c", scope=Scope(run=f"r{turn}"))
        recalled = load_run(agent.engine.journal, agent.engine.blobs, result.run)
    assert same(recalled.history.messages, result.messages)
    assert (recalled.results, recalled.signals) == (list(result.results), list(result.signals))
    spent, told = result.spent, recalled.spent(None)
    assert told == structs.replace(spent, wall_s=told.wall_s)


async def test_lone_surrogates_are_recorded_escaped(ledger: Ledger) -> None:
    """In any message: of the user, of the model, and of the given history."""
    model = Script(says("I see \ud800.", call("look", {"what": "a"})), says("Done \udfff."))
    async with Agent(model, tools=shop(ledger)) as agent:
        result = await agent.run("Look at \ud800.", scope=IN_RUN, history=[UserMessage("Before \ud8ff.")])
        recalled = load_run(agent.engine.journal, agent.engine.blobs, RUN)
    assert (result.status, result.text) == ("completed", "Done \udfff.")
    assert recalled.texts[-1] == "Done \\udfff."
    shown = [message for message in recalled.history.messages if isinstance(message, (UserMessage, AssistantMessage))]
    asked, task, first, last = (one.content if isinstance(one, UserMessage) else one.parts[0] for one in shown)
    assert (asked, task) == ("Before \\ud8ff.", "Look at \\ud800.")
    assert (first, last) == (Text(text="I see \\ud800."), Text(text="Done \\udfff."))


async def test_a_conversation_of_several_runs_is_loaded_from_its_beginning(ledger: Ledger) -> None:
    """Each run's record continues the record of the previous run; a history given by the host is stored in full."""
    brought: list[Message] = [UserMessage("Before."), AssistantMessage(parts=())]
    async with Agent(Script(*(says(str(n)) for n in range(5))), tools=shop(ledger)) as agent:
        await agent.run("0", conversation="c", scope=Scope(run="r0"), history=brought)
        for turn in range(1, 5):
            result = await agent.run(str(turn), conversation="c", scope=Scope(run=f"r{turn}"))
        assert all("history" not in body(of_run(agent.engine.journal, "run.began", run=f"r{n}")[0]) for n in range(1, 5))
        assert same(load_run(agent.engine.journal, agent.engine.blobs, "r4").history.messages, result.messages)


async def test_the_end_of_a_run_is_on_disk_before_run_returns(tmp_path: Path, ledger: Ledger) -> None:
    """A run whose end was reported to the caller is not resumed after a crash."""
    path = tmp_path / "journal.db"
    engine = Engine(shop(ledger), journal=SqliteJournal(path))
    async with engine, Agent(Script(says("Done.")), engine) as agent:
        assert (await agent.run("Say so.", scope=IN_RUN)).completed
        other = SqliteJournal(path)
        assert [event.kind for event in other.find(EventQuery(run=RUN))][-1] == "run.ended"
        await other.close()


# Resume


async def cut_off(path: Path, ledger: Ledger, model: Script, until: Callable[[], bool], **settings: Any) -> None:
    """Run until `until` is true, then cancel the task, as Ctrl-C does."""
    engine = Engine(journal=SqliteJournal(path), **settings)
    async with engine, Agent(model, engine) as agent:
        running = asyncio.ensure_future(agent.run("Pay ann.", scope=IN_RUN))
        while not until():
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def resumed(path: Path, model: Script, run: str = RUN, **settings: Any) -> RunResult:
    engine = Engine(journal=SqliteJournal(path), **settings)
    async with engine, Agent(model, engine) as agent:
        return await agent.resume(run)


async def test_a_run_interrupted_in_a_pass_asks_the_model_again_on_resume(tmp_path: Path, ledger: Ledger) -> None:
    gate, path = Gate(), tmp_path / "journal.db"
    await cut_off(path, ledger, Script([gate]), gate.reached.is_set, tools=shop(ledger))
    result = await resumed(path, Script(PAY, says("Done.")), tools=shop(ledger))
    assert (result.status, result.text, ledger.lines()) == ("completed", "Done.", ["ann"])


async def test_an_interrupted_call_is_reported_as_unknown_and_an_unstarted_one_as_not_run(tmp_path: Path, ledger: Ledger) -> None:
    path, forever = tmp_path / "journal.db", asyncio.Event()

    @tool
    async def pay(to: str) -> str:
        """Pay, and never answer."""
        ledger.write(to)
        await forever.wait()
        return "paid"

    two = says(call("pay", {"to": "ann"}, id="1"), call("pay", {"to": "bob"}, id="2", position=1))
    await cut_off(path, ledger, Script(two), lambda: bool(ledger.lines()), tools=[pay])
    model = Script(says("I see."), says("Still."))
    result = await resumed(path, model, tools=[pay])
    first, second = tool_texts(model.seen[0])
    assert (result.status, ledger.lines()) == ("completed", ["ann"])
    assert "may have taken effect" in first
    assert "Nothing happened" in second
    journal = SqliteJournal(path)
    assert same(load_run(journal, Engine().blobs, RUN).history.messages, result.messages)
    await journal.close()


async def test_an_approval_can_be_answered_and_its_run_resumed_by_other_engines(tmp_path: Path, ledger: Ledger) -> None:
    """The answer applies only to the call that needed the approval, and only once."""
    path = tmp_path / "journal.db"
    settings: dict[str, Any] = {"tools": shop(ledger), "policies": [Asks("pay")]}
    async with Engine(journal=SqliteJournal(path), **settings) as engine, Agent(Script(PAY), engine) as agent:
        waiting = await agent.run("Pay ann.", scope=Scope(run=RUN, principal="eve", actor="ada"))
    assert waiting.pending is not None
    question = waiting.pending.approvals[0].approval_id
    async with Engine(journal=SqliteJournal(path), **settings) as engine:
        await engine.answer(question, allow=True, by="bob")
    result = await resumed(path, Script(PAY), **settings)
    assert (result.status, ledger.lines()) == ("waiting", ["ann"])  # the same payment again needs another approval
    assert "allowed by bob" in result.results[0].metadata.rule
    assert "paid ann" in result.results[0].text
    with pytest.raises(UsageError, match="open"):
        async with Engine(journal=SqliteJournal(path), **settings) as engine:
            await engine.answer(question, allow=True)


async def test_a_denial_by_a_human_is_reported_to_the_model_on_resume(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "journal.db"
    settings: dict[str, Any] = {"tools": shop(ledger), "policies": [Asks("pay")]}
    async with Engine(journal=SqliteJournal(path), **settings) as engine, Agent(Script(PAY), engine) as agent:
        waiting = await agent.run("Pay ann.", scope=IN_RUN)
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=False, by="bob")
    model = Script(says("All right."))
    result = await resumed(path, model, **settings)
    assert (result.status, ledger.lines()) == ("completed", [])
    assert "bob said no" in tool_texts(model.seen[0])[0]
    assert result.results[-1].code == "human_denied"


async def test_an_approval_loaded_from_the_record_expires(tmp_path: Path, ledger: Ledger) -> None:
    path, clock = tmp_path / "journal.db", ManualClock()
    settings: dict[str, Any] = {"tools": shop(ledger), "policies": [Asks("pay")], "clock": clock}
    async with Engine(journal=SqliteJournal(path, clock), **settings) as engine, Agent(Script(PAY), engine) as agent:
        waiting = await agent.run("Pay ann.", scope=IN_RUN)
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
    clock.advance(engine.limits.approval_s + 1)
    assert (await resumed(path, Script(), **settings)).status == "waiting"
    assert ledger.lines() == []


async def test_a_call_whose_arguments_were_redacted_is_not_run_from_the_record(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "journal.db"
    settings: dict[str, Any] = {"tools": shop(ledger), "policies": [Asks("pay")], "redactor": Hider()}
    secret = says(call("pay", {"to": "hunter2"}, id="1"))
    async with Engine(journal=SqliteJournal(path), **settings) as engine, Agent(Script(secret), engine) as agent:
        waiting = await agent.run("Pay.", scope=IN_RUN)
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
    model = Script(says("I see."))
    result = await resumed(path, model, **settings)
    assert (result.status, ledger.lines()) == ("completed", [])
    assert "a secret was taken out" in tool_texts(model.seen[0])[0]


async def test_a_run_cannot_be_resumed_twice_at_the_same_time(tmp_path: Path, ledger: Ledger) -> None:
    path, gate, other = tmp_path / "journal.db", Gate(), Gate()
    await cut_off(path, ledger, Script([gate]), gate.reached.is_set, tools=shop(ledger))
    engine = Engine(shop(ledger), journal=SqliteJournal(path))
    async with engine, Agent(Script([other, *says("Done.")]), engine) as agent:
        first = asyncio.ensure_future(agent.resume(RUN))
        await other.reached.wait()
        with pytest.raises(UsageError, match="being worked on"):
            await agent.resume(RUN)
        elsewhere = Engine(shop(ledger), journal=SqliteJournal(path))
        async with elsewhere, Agent(Script(says("Me too.")), elsewhere) as second:
            with pytest.raises(RunHeld, match=r"worked on by process \d+, which holds it for \d+ s more"):
                await second.resume(RUN)
        other.open.set()
        assert (await first).completed


@pytest.mark.parametrize(("run", "says_why"), [("nobody", "on record"), (RUN, "is over"), ("bare", "on record"), ("", "on record")])
async def test_resume_refuses_a_run_that_is_unknown_or_over_with_a_reason(run: str, says_why: str, ledger: Ledger) -> None:
    async with Agent(Script(says("Done.")), tools=shop(ledger)) as agent:
        await agent.run("Go.", scope=IN_RUN)
        await agent.engine.call(raw_call("look", what="a"), Scope(run="bare"))
        with pytest.raises(UsageError, match=says_why):
            await agent.resume(run)


@after_call(kind="transform")
def hides(call: ValidatedCall, result: Checked) -> str:
    return str(result.value).replace("ann", "[hidden]")


@after_call(kind="reject")
def withholds(call: ValidatedCall, result: Checked) -> str:
    return "not for models"


@pytest.mark.parametrize(
    ("hooks", "shown"), [([], "paid ann"), ([hides], "paid [hidden]"), ([withholds], "not for models")], ids=["plain", "hidden", "withheld"]
)
async def test_verify_decides_the_outcome_of_an_open_call_when_a_run_is_resumed(
    hooks: list[Hook], shown: str, tmp_path: Path, ledger: Ledger
) -> None:
    """The journal copy stands for a process that was killed; tests/recovery kills one. Hooks apply to the verified result."""
    path, forever = tmp_path / "journal.db", asyncio.Event()

    def verify(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=True, result=f"paid {arguments['to']}")

    @tool(verify=verify)
    async def pay(to: str) -> str:
        """Pay, and never answer."""
        ledger.write(to)
        await forever.wait()
        return "paid"

    engine = Engine([pay], journal=SqliteJournal(path))
    agent = Agent(Script(PAY), engine)
    running = asyncio.ensure_future(agent.run("Pay ann.", scope=IN_RUN))
    while not ledger.lines():
        await asyncio.sleep(0)
    copy = tmp_path / "copy.db"
    source = apsw.Connection(str(path))
    source.execute("VACUUM INTO ?", (str(copy),))  # the file as a power loss would leave it
    source.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await engine.close()
    result = await resumed(copy, Script(says("Done.")), tools=[pay], hooks=hooks)
    assert (shown in result.results[0].text, ledger.lines()) == (True, ["ann"])
    assert ("paid ann" in result.results[0].text) is (not hooks)
    assert result.results[0].failure_class == ("rejected_by_hook" if hooks == [withholds] else None)


async def test_a_rerun_call_does_not_repeat_the_effects_of_its_nested_calls(tmp_path: Path, ledger: Ledger) -> None:
    path, copy, hangs = tmp_path / "journal.db", tmp_path / "copy.db", asyncio.Event()

    @tool(effect="idempotent")
    async def order(ctx: ToolContext) -> str:
        """Pay, and then hang the first time."""
        paid = (await ctx.call("pay", {"to": "ann"})).text
        if not copy.exists():
            hangs.set()
            await asyncio.Event().wait()
        return paid

    tools = [order, *shop(ledger)]
    engine = Engine(tools, journal=SqliteJournal(path))
    running = asyncio.ensure_future(Agent(Script(says(call("order"))), engine).run("Order.", scope=IN_RUN))
    await hangs.wait()
    source = apsw.Connection(str(path))
    source.execute("VACUUM INTO ?", (str(copy),))
    source.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await engine.close()
    result = await resumed(copy, Script(says("Done.")), tools=tools)
    assert ([one.text for one in result.results], ledger.lines()) == (["paid ann"], ["ann"])


def test_settings_of_older_records_are_read_by_their_former_option_names() -> None:
    """The option `system_text` had another name, which older journals contain."""
    assert msgspec.json.decode(b'{"bios":true,"pauses":3}', type=Settings) == Settings(system_text=True, pauses=3)
    assert b'"bios":true' in msgspec.json.encode(Settings(system_text=True))
