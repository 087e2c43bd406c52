"""Resume with open calls whose record or tool has changed: redacted arguments, another effect, other policies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from callgate import Allow, Deny, Engine, Limits, Modify, RetryPolicy, Scope, SqliteJournal, Tool, Verified, before_call, tool
from callgate.agent import Agent, RunResult
from callgate.calls import Effect
from callgate.events import TERMINAL, Event
from callgate.messages import UserMessage
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Answer, Gate, Script, call, says
from tests.effect_ledger import Ledger
from tests.host_fakes import Hider
from tests.waiting import PATIENCE_S, until

RUN = "the-run"
IN_RUN = Scope(run=RUN)
PAY = says(call("pay", {"to": "ann"}, id="1"))


def paying(ledger: Ledger, effect: Effect, **settings: Any) -> Tool:
    """Return `pay(to)`, which hangs on its first call and returns at once on every other."""

    @tool(effect=effect, **settings)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if len(ledger.lines()) == 1:
            await asyncio.Event().wait()
        return f"paid {to}"

    return pay


class InterruptedRun:
    """A run whose process ended at a moment that the test chooses, with the journal as it was on disk."""

    def __init__(self, folder: Path) -> None:
        self._path, self._copy = folder / "journal.db", folder / "copy.db"
        self.events: list[Event] = []
        """The events of the run, set after the resume."""
        self.engine: Engine | None = None
        """The engine of the first process."""
        self.copied = asyncio.Event()
        """Set when the journal was copied."""
        self.model = Script()
        """The model of the resumed run."""

    async def ends(self, answer: Answer, when: Callable[[], object], **settings: Any) -> None:
        async with Engine(journal=SqliteJournal(self._path), **settings) as engine:
            self.engine = engine
            running = asyncio.ensure_future(Agent(Script(answer), engine).run("Pay ann.", scope=IN_RUN))
            await until(when)
            await until(lambda: self._on_disk() == len(list(engine.journal.read())))
            source = apsw.Connection(str(self._path))
            source.execute("VACUUM INTO ?", (str(self._copy),))
            source.close()
            self.copied.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _on_disk(self) -> int:
        """Return the number of events that another process would read."""
        reader = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return int(reader.execute("SELECT count(*) FROM events").get)
        finally:
            reader.close()

    async def goes_on(self, *answers: Answer, **settings: Any) -> RunResult:
        async with Engine(journal=SqliteJournal(self._copy), **settings) as engine:
            self.model = Script(*answers, says("I see."))
            result = await Agent(self.model, engine).resume(RUN)
            self.events = list(engine.journal.read(run=RUN))
        return result

    def ends_of(self, uid: str) -> list[str]:
        return [event.kind for event in self.events if event.call == uid and event.kind in TERMINAL]


@pytest.fixture
def broken(tmp_path: Path) -> InterruptedRun:
    return InterruptedRun(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "effects"),
    [("idempotent", "idempotent", 2), ("once", "idempotent", 1), ("idempotent", "once", 1), ("once", "none", 1), ("idempotent", "none", 1)],
)
async def test_an_open_call_runs_again_only_if_its_tool_was_and_is_idempotent(
    before: Effect, after: Effect, effects: int, broken: InterruptedRun, ledger: Ledger
) -> None:
    """The tool's author may have changed the effect in either direction."""
    await broken.ends(PAY, ledger.lines, tools=[paying(ledger, before)])
    result = await broken.goes_on(tools=[paying(ledger, after)])
    assert ledger.lines() == ["ann"] * effects
    assert [one.status for one in result.results] == ["ok" if effects == 2 else "unknown"]


async def test_a_resumed_call_numbers_its_attempts_after_those_of_its_first_process(broken: InterruptedRun, ledger: Ledger) -> None:
    @tool(effect="idempotent", retry=RetryPolicy(attempts=2, base_s=0.0, max_s=0.0))
    async def pay(to: str) -> str:
        """Hang, then lose the connection, then pay."""
        ledger.write(to)
        if len(ledger.lines()) == 1:
            await asyncio.Event().wait()
        if len(ledger.lines()) == 2:
            raise ConnectionResetError("reset")
        return f"paid {to}"

    await broken.ends(PAY, ledger.lines, tools=[pay])
    await broken.goes_on(tools=[pay])
    kinds = ("call.started", "call.attempt_failed")
    assert [(event.kind, event.attempt) for event in broken.events if event.kind in kinds] == [
        ("call.started", 1),
        ("call.started", 2),
        ("call.attempt_failed", 2),
        ("call.started", 3),
    ]


@pytest.mark.parametrize("text", ["", "I pay."])
async def test_a_call_that_a_kill_ended_before_its_process_ended_is_told_when_the_run_is_resumed(
    text: str, broken: InterruptedRun, ledger: Ledger
) -> None:
    """Its message was not committed. The request of the resumed run ends with a message of the user, as providers require."""

    @tool(writes="account:{to}")
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        try:
            await asyncio.Event().wait()
        finally:
            if to == "bob":
                await broken.copied.wait()
        return "paid"

    def one_was_ended() -> bool:
        assert broken.engine is not None
        if len(ledger.lines()) == 2:
            broken.engine.control.kill(RUN)
        return any(event.kind == "call.aborted" for event in broken.engine.journal.read(run=RUN))

    calls = [call("pay", {"to": to}, id=to, position=at) for at, to in enumerate(("ann", "bob"))]
    answer = says(*([text] if text else []), *calls)
    await broken.ends(answer, one_was_ended, tools=[pay], limits=Limits(grace_s=PATIENCE_S))
    assert (await broken.goes_on(tools=[pay])).completed
    *_, last = broken.model.seen[0]
    assert isinstance(last, UserMessage)
    assert str(last.content).count('{"to": "ann"}') == 1
    assert sorted(ledger.lines()) == ["ann", "bob"]


class Redirects:
    """A policy or hook that changes the payee of a payment."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Modify(arguments={"to": "bob"}, reason="ann has moved") if call.arguments["to"] == "ann" else Allow()


@pytest.mark.parametrize("by", ["a policy", "a hook"])
async def test_an_open_call_is_not_rerun_with_changed_arguments_under_its_idempotency_key(
    by: str, broken: InterruptedRun, ledger: Ledger
) -> None:
    @before_call("pay", kind="transform")
    def redirects(call: ValidatedCall) -> dict[str, object]:
        return {"to": "bob"}

    await broken.ends(PAY, ledger.lines, tools=[paying(ledger, "idempotent")])
    changes: dict[str, Any] = {"policies": [Redirects()]} if by == "a policy" else {"hooks": [redirects]}
    result = await broken.goes_on(tools=[paying(ledger, "idempotent")], **changes)
    (told,) = result.results
    assert (told.status, ledger.lines()) == ("unknown", ["ann"])
    assert "would not be the same" in told.text


async def test_an_open_call_that_a_policy_now_denies_has_an_unknown_outcome(broken: InterruptedRun, ledger: Ledger) -> None:
    class No:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason="payments are off")

    await broken.ends(PAY, ledger.lines, tools=[paying(ledger, "idempotent")])
    result = await broken.goes_on(tools=[paying(ledger, "idempotent")], policies=[No()])
    (told,) = result.results
    assert (told.status, ledger.lines()) == ("unknown", ["ann"])
    assert "payments are off" in told.text


class RecordingVerify:
    """A `verify` function that records the arguments it gets."""

    def __init__(self) -> None:
        self.about: list[object] = []

    def __call__(self, arguments: dict[str, object], key: str) -> Verified:
        self.about.append(arguments)
        return Verified(happened=False)


@pytest.mark.parametrize(("effect", "status"), [("once", "unknown"), ("idempotent", "unknown"), ("none", "error")])
async def test_an_open_call_whose_arguments_were_redacted_is_not_run_from_the_record(
    effect: Effect, status: str, broken: InterruptedRun, ledger: Ledger
) -> None:
    """`verify` is not called either: the tool never had the redacted arguments."""
    verify = RecordingVerify()
    tools = [paying(ledger, effect, verify=verify)]
    await broken.ends(says(call("pay", {"to": "hunter2"}, id="1")), ledger.lines, tools=tools, redactor=Hider())
    result = await broken.goes_on(tools=tools, redactor=Hider())
    (told,) = result.results
    assert (told.status, ledger.lines(), verify.about) == (status, ["hunter2"], [])
    assert "a secret was taken out" in told.text
    assert told.failure_class == ("outcome_unknown" if status == "unknown" else "not_started")


async def test_verify_is_not_called_when_the_final_arguments_were_redacted(broken: InterruptedRun, ledger: Ledger) -> None:
    """The arguments of the model contain no secret; those that a hook made of them do."""

    @before_call("pay", kind="transform")
    def looks_up(call: ValidatedCall) -> dict[str, object]:
        return {"to": "hunter2"}

    verify = RecordingVerify()
    settings: dict[str, Any] = {"tools": [paying(ledger, "once", verify=verify)], "hooks": [looks_up], "redactor": Hider()}
    await broken.ends(PAY, ledger.lines, **settings)
    result = await broken.goes_on(**settings)
    assert ([one.status for one in result.results], ledger.lines(), verify.about) == (["unknown"], ["hunter2"], [])


async def test_open_calls_of_an_unfinished_message_are_closed_and_the_model_is_asked_again(broken: InterruptedRun, ledger: Ledger) -> None:
    """A read call started while its message streamed. The message was never completed, so the model is asked again."""
    gate, looked = Gate(), asyncio.Event()

    @tool(effect="none")
    async def look(what: str) -> str:
        """Look, and never answer the first time."""
        if what == "first":
            looked.set()
            await asyncio.Event().wait()
        return f"saw {what}"

    sealed = says(call("look", {"what": "first"}, id="1"))[:2]
    await broken.ends([*sealed, gate], lambda: looked.is_set() and gate.reached.is_set(), tools=[look])
    result = await broken.goes_on(says(call("look", {"what": "second"}, id="1")), tools=[look])
    assert [one.text for one in result.results] == ["saw second"]
    received = [event.call for event in broken.events if event.kind == "call.received"]
    assert len(received) == 2
    assert [len(broken.ends_of(uid)) for uid in received] == [1, 1]
    assert broken.ends_of(received[0]) != ["call.completed"]


@pytest.mark.parametrize(("happened", "effects"), [(True, 1), (False, 2)])
async def test_an_open_call_that_an_operator_has_settled_ends_as_they_said(
    happened: bool, effects: int, tmp_path: Path, broken: InterruptedRun, ledger: Ledger
) -> None:
    await broken.ends(PAY, ledger.lines, tools=[paying(ledger, "once")])
    async with Engine(journal=SqliteJournal(tmp_path / "copy.db")) as operator:
        await operator.settle(f"{RUN}/0/0", happened=happened, by="bob")
    result = await broken.goes_on(PAY if happened else says("Paid."), tools=[paying(ledger, "once")])
    first, *others = result.results
    assert (first.status, "bob has checked it" in first.text, len(ledger.lines())) == ("ok", happened, effects + len(others))
    assert broken.ends_of(f"{RUN}/0/0") == ["call.completed"]
