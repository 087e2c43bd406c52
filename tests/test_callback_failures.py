"""Code of the host and of tool authors may raise anything: the call still has an outcome, and its end is recorded."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from callgate import Aborted, Ask, Engine, Limits, MemoryJournal, Scope, Tool, after_call, tool
from callgate.errors import UsageError
from callgate.events import Draft
from callgate.protocols import Verdict
from callgate.stage_types import Checked, ValidatedCall
from tests.engine_calls import bodies, call, kinds, result_of, said
from tests.waiting import PATIENCE_S

ERRORS = [ValueError("dark"), SystemExit(3), asyncio.CancelledError(), RecursionError(), StopIteration(3), GeneratorExit()]

whatever_the_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


class Failing:
    """A callback that always raises the same error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, *_: object) -> NoReturn:
        raise self._error

    async def waited_for(self, *_: object) -> NoReturn:
        raise self._error

    redact = __call__


def acting(**settings: Any) -> Tool:
    @tool(**settings)
    async def act(n: int = 1) -> str:
        """Act."""
        return "done"

    return act


@whatever_the_error
async def test_a_failing_validator_is_reported_as_validator_failed(error: BaseException) -> None:
    """The call returns a result whatever the validator raises. A `CancelledError` that nobody requested is a failure of the validator."""
    async with Engine([acting(validate=Failing(error))]) as engine:
        result = await said(engine, call("act"))
        assert kinds(engine)[-1] == "call.completed"
    assert (result.status, result.code) == ("error", "validator_failed")


@whatever_the_error
async def test_a_reads_function_that_raises_counts_as_undeclared_resources(error: BaseException) -> None:
    """A call with unknown resources is treated as touching all of them."""
    async with Engine([acting(reads=Failing(error))]) as engine:
        outcomes = await engine.call_many([call("act", n=1), call("act", n=2)])
    assert [result_of(outcome).status for outcome in outcomes] == ["ok", "ok"]


@whatever_the_error
@pytest.mark.parametrize("waits", [False, True])
async def test_a_failing_verify_leaves_the_outcome_unknown(error: BaseException, waits: bool) -> None:
    """The call is not started again."""
    failing, started = Failing(error), []

    @tool(timeout_s=0.01, verify=failing.waited_for if waits else failing)
    async def act(n: int = 1) -> str:
        """Act."""
        started.append(n)
        await asyncio.Event().wait()
        return "done"

    async with Engine([act], limits=Limits(grace_s=0.01)) as engine:
        first = await said(engine, call("act"))
        again = await said(engine, call("act"))
    assert (first.status, again.status, again.code, started) == ("unknown", "unknown", "outcome_unknown", [1])


@whatever_the_error
async def test_a_call_neither_runs_nor_is_recorded_when_the_redactor_fails(error: BaseException) -> None:
    """A call does not run if it cannot be recorded without its secrets."""
    async with Engine([acting()], redactor=Failing(error)) as engine:
        result = await said(engine, call("act"))
        assert kinds(engine) == []
    assert (result.status, result.code) == ("error", "redactor_failed")
    assert "dark" not in result.text


@whatever_the_error
async def test_a_failing_restart_handler_leaves_the_result_to_the_model(error: BaseException) -> None:
    """A result that the handler did not consume is returned as usual."""

    @tool(effect="none")
    async def look() -> dict[str, object]:
        """Look."""
        return {"success": True, "data": {"type": "context_restart_image"}}

    async with Engine([look], restart=Failing(error).waited_for) as engine:
        result = await said(engine, call("look"))
    assert (result.status, result.data) == ("ok", {"type": "context_restart_image"})


async def test_a_call_does_not_wait_for_a_restart_handler_that_never_returns() -> None:
    """`hook_timeout_s` bounds the wait."""

    @tool(effect="none")
    async def look() -> dict[str, object]:
        """Look."""
        return {"success": True, "data": {"type": "context_restart_image"}}

    async def hangs(data: object) -> bool:
        return bool(await asyncio.Event().wait())

    async with Engine([look], restart=hangs, limits=Limits(hook_timeout_s=0.01)) as engine:
        assert (await said(engine, call("look"))).status == "ok"


def test_an_async_validator_is_refused_when_the_tool_is_made() -> None:
    """The error says what to write instead."""

    async def validate(params: dict[str, Any]) -> None: ...

    with pytest.raises(UsageError, match="plain def"):
        acting(validate=validate)


class Raises:
    """A policy that raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def decide(self, call: ValidatedCall) -> Verdict:
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt()], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("place", "status"), [("policy", "not_started"), ("hook", "unknown"), ("validator", "not_started")])
async def test_a_keyboard_interrupt_propagates_and_the_call_is_recorded_as_aborted(error: BaseException, place: str, status: str) -> None:
    """The call has exactly one terminal event."""

    @after_call("act")
    def watch(call: ValidatedCall, checked: Checked) -> None:
        raise error

    subject = acting(effect="once", validate=Failing(error) if place == "validator" else None)
    hooks, policies = [watch] if place == "hook" else [], [Raises(error)] if place == "policy" else []
    async with Engine([subject], hooks=hooks, policies=policies) as engine:
        with pytest.raises(type(error)):
            await engine.call(call("act"))
        [ended] = bodies(engine, "call.aborted")
        assert kinds(engine)[-1] == "call.aborted"
    assert ended["status"] == status
    assert type(error).__name__ in str(ended["reason"])


async def test_closing_the_coroutine_of_a_call_ends_its_tool_and_records_unknown() -> None:
    """A host may drive the coroutine by hand and close it; the clean-up of the tool still runs."""
    told: list[str] = []

    @tool(effect="once")
    async def act() -> str:
        """Wait forever."""
        try:
            await asyncio.Event().wait()
        finally:
            told.append("over")
        return "done"

    async with Engine([act]) as engine:
        running = engine.call(call("act"))
        running.send(None)
        running.close()
        assert kinds(engine) == ["call.received", "call.started", "call.aborted"]
        [ended] = bodies(engine, "call.aborted")
    assert (told, ended["status"]) == (["over"], "unknown")


class Full(MemoryJournal):
    """A journal that cannot write events of some kinds, as on a full disk."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        self.kinds = kinds

    def append(self, draft: Draft) -> int:
        if draft.kind in self.kinds:
            raise OSError("no space left on device")
        return super().append(draft)


async def test_an_approval_question_that_cannot_be_recorded_fails_the_call() -> None:
    """A call returns an error and never raises if its terminal event cannot be written."""
    async with Engine([acting()], policies=[Asking()], journal=Full("call.suspended")) as engine:
        result = await said(engine, call("act"))
    assert (result.status, result.failure_class) == ("error", "record_failed")


async def test_a_stop_takes_effect_even_if_it_cannot_be_recorded() -> None:
    async with Engine([acting()], journal=Full("call.aborted")) as engine:
        engine.control.stop("talk", "enough")
        outcome = await engine.call(call("act"), Scope(conversation="talk"))
    assert isinstance(outcome, Aborted)
    assert (outcome.status, outcome.recorded) == ("stopped_by_user", False)
    assert outcome.reason.startswith("enough (not on record: ")


class Asking:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="may it?", rule="ask")


class Unspeakable(Exception):
    """An exception that exits the program when its text is read."""

    def __str__(self) -> str:
        raise SystemExit(2)


class Unreadable(list[int]):
    """A list that exits the program when it is iterated."""

    def __iter__(self) -> NoReturn:
        raise SystemExit(3)


@pytest.mark.parametrize("runner", ["inline", "thread"])
@pytest.mark.parametrize("effect", ["none", "once"])
async def test_an_unreadable_exception_or_result_is_a_failure_of_its_tool(runner: str, effect: Any) -> None:
    """The exit is raised by the tool's own code. In a thread, it would otherwise leave the call without a result until its deadline."""

    @tool(effect=effect, runner=runner)
    def fail() -> str:
        """Fail."""
        raise Unspeakable

    @tool(effect=effect, runner=runner)
    def give() -> Any:
        """Give."""
        return Unreadable([1])

    async with Engine([fail, give], timeout_s=PATIENCE_S) as engine:
        failed, given = await said(engine, call("fail")), await said(engine, call("give"))
    assert (failed.status, failed.code) == ("error" if effect == "none" else "unknown", "tool_raised")
    assert "its message cannot be shown" in failed.text
    assert (given.status, given.code) == ("error", "non_serializable")


class PretendsToBeText:
    """An object that claims to be a `str`, as mocks do."""

    __class__ = str  # type: ignore[assignment]


class RaisesOnClassAccess:
    """An object that exits the program when its class is read."""

    @property  # type: ignore[misc]
    def __class__(self) -> NoReturn:  # type: ignore[override]
        raise SystemExit(2)


class Nameless(type):
    """A metaclass whose classes have no readable name."""

    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise ValueError("no name")


class NamelessException(Exception, metaclass=Nameless):
    """An exception whose class has no readable name."""


class NamelessResult(metaclass=Nameless):
    """A result whose class has no readable name."""


@pytest.mark.parametrize("runner", ["inline", "thread"])
@pytest.mark.parametrize(
    "value",
    [PretendsToBeText(), [PretendsToBeText()], [RaisesOnClassAccess()], NamelessResult()],
    ids=["posing", "posing within", "touchy", "veiled"],
)
async def test_a_result_with_a_false_or_hidden_class_is_reported_as_non_serializable(runner: str, value: object) -> None:
    """The failure is neither an internal error of the engine nor an unknown outcome."""

    @tool(runner=runner)
    def give() -> Any:
        """Give."""
        return value

    async with Engine([give], timeout_s=PATIENCE_S) as engine:
        result = await said(engine, call("give"))
    assert (result.status, result.code) == ("error", "non_serializable")


class Unprintable:
    """An object whose `repr` and `str` raise."""

    def __repr__(self) -> NoReturn:
        raise ValueError("no text")


@pytest.mark.parametrize("runner", ["inline", "thread"])
@pytest.mark.parametrize(
    ("error", "text"),
    [(NamelessException("no money left"), "no money left"), (SystemExit(Unprintable()), "its message cannot be shown")],
    ids=["no name", "no text of its code"],
)
async def test_an_exception_without_a_readable_name_or_text_ends_its_call_at_once(runner: str, error: BaseException, text: str) -> None:
    """In a thread, the call would otherwise have no result until its deadline."""

    @tool(runner=runner)
    def fail() -> None:
        """Fail."""
        raise error

    async with Engine([fail], timeout_s=PATIENCE_S) as engine:
        result = await said(engine, call("fail"))
    assert (result.status, result.code) == ("unknown", "tool_raised")
    assert text in result.text
