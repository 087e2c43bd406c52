"""Code of the host's and of the tools' authors may fail in any way: the call ends with an outcome, and on record."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from callgate import Engine, Limits, Tool, tool
from callgate.errors import UsageError
from tests.door import call, kinds, result_of, said

ERRORS = [ValueError("dark"), SystemExit(3), asyncio.CancelledError(), RecursionError(), StopIteration(3)]

whatever_the_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


class Failing:
    """Fails the same way whatever is asked of it."""

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
async def test_a_validator_that_fails_is_its_authors_business(error: BaseException) -> None:
    """An outcome comes back whatever the tool did; a cancel that nobody asked for is its own failure."""
    async with Engine([acting(validate=Failing(error))]) as engine:
        result = await said(engine, call("act"))
        assert kinds(engine)[-1] == "call.completed"
    assert (result.status, result.code) == ("error", "validator_failed")


@whatever_the_error
async def test_resources_that_cannot_be_worked_out_count_as_not_declared(error: BaseException) -> None:
    """Unknown is treated as touching everything."""
    async with Engine([acting(reads=Failing(error))]) as engine:
        outcomes = await engine.call_many([call("act", n=1), call("act", n=2)])
    assert [result_of(outcome).status for outcome in outcomes] == ["ok", "ok"]


@whatever_the_error
@pytest.mark.parametrize("waits", [False, True])
async def test_a_verify_that_fails_leaves_the_doubt(error: BaseException, waits: bool) -> None:
    """Nobody knows: the call is not started again."""
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
async def test_where_the_redactor_fails_nothing_runs_and_nothing_is_told(error: BaseException) -> None:
    """No call runs that could not be recorded without its secrets."""
    async with Engine([acting()], redactor=Failing(error)) as engine:
        result = await said(engine, call("act"))
        assert kinds(engine) == []
    assert (result.status, result.code) == ("error", "redactor_failed")
    assert "dark" not in result.text


@whatever_the_error
async def test_where_the_handler_of_restarts_fails_the_result_goes_to_the_model(error: BaseException) -> None:
    """What was not consumed is not lost."""

    @tool(effect="none")
    async def look() -> dict[str, object]:
        """Look."""
        return {"success": True, "data": {"type": "context_restart_image"}}

    async with Engine([look], restart=Failing(error).waited_for) as engine:
        result = await said(engine, call("look"))
    assert (result.status, result.data) == ("ok", {"type": "context_restart_image"})


async def test_a_handler_of_restarts_that_never_answers_holds_up_nobody() -> None:
    """Every wait has a bound."""

    @tool(effect="none")
    async def look() -> dict[str, object]:
        """Look."""
        return {"success": True, "data": {"type": "context_restart_image"}}

    async def hangs(data: object) -> bool:
        return bool(await asyncio.Event().wait())

    async with Engine([look], restart=hangs, limits=Limits(hook_timeout_s=0.01)) as engine:
        assert (await said(engine, call("look"))).status == "ok"


def test_a_validator_that_would_have_to_be_waited_for_is_refused_at_once() -> None:
    """A tool that cannot work is refused when it is made, with what to write instead."""

    async def validate(params: dict[str, Any]) -> None: ...

    with pytest.raises(UsageError, match="plain def"):
        acting(validate=validate)
