"""Host callbacks affect only their own call, whatever they raise, and delay it no longer than their timeout, even if they ignore
cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

import pytest

from callgate import Engine, Limits, Scope, Tool, after_call, before_call, tool
from callgate.protocols import Allow, Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import bodies, call, ends, said
from tests.waiting import soon

LIMITS = Limits(policy_timeout_s=0.02, hook_timeout_s=0.02, grace_s=0.01)
ERRORS: list[BaseException] = [ValueError("dark"), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), TimeoutError()]

whatever_it_raises = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@tool(effect="none")
async def look(n: int = 1) -> dict[str, object]:
    """Look."""
    return {"success": True, "data": {"type": "context_restart_image", "n": n}}


class IgnoresCancellation:
    """A callback that ignores cancellation until it is released, and counts the cancels."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.cancels = 0
        self.ended = False

    async def go_on(self, *_: object) -> Any:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancels += 1
        self.ended = True
        return None

    async def let_go(self) -> None:
        self.released.set()
        assert await soon(lambda: self.ended)


class Policy:
    def __init__(self, decide: Callable[..., Any]) -> None:
        self._decide = decide

    async def decide(self, call: ValidatedCall) -> Verdict:
        await self._decide(call)
        return Allow()


def raising(error: BaseException, turns: int) -> Callable[..., Any]:
    async def fail(*_: object) -> NoReturn:
        for _turn in range(turns):
            await asyncio.sleep(0)
        raise error

    return fail


def raising_at_once(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


async def works(engine: Engine) -> bool:
    """Return whether the engine still runs calls, each with one terminal event."""
    given = await said(engine, call("look", n=2))
    return given.status in ("ok", "error") and set(ends(engine).values()) == {1}


@whatever_it_raises
@pytest.mark.parametrize("turns", [0, 1])
async def test_a_policy_that_raises_denies_its_call_and_does_not_affect_the_engine(error: BaseException, turns: int) -> None:
    async with Engine([look], policies=[Policy(raising(error, turns))], limits=LIMITS) as engine:
        given = await said(engine, call("look"))
        assert (given.status, given.code) == ("error", "policy_failed")
        assert type(error).__name__ in str(given.error)
        assert await works(engine)


async def test_a_policy_that_ignores_cancellation_denies_its_call_at_its_timeout() -> None:
    stubborn = IgnoresCancellation()
    async with Engine([look], policies=[Policy(stubborn.go_on)], limits=LIMITS) as engine:
        given = await said(engine, call("look"))
        assert (given.status, given.code) == ("error", "policy_failed")
        assert stubborn.cancels == 1
        assert not stubborn.ended
        await stubborn.let_go()


async def test_a_call_cancelled_while_a_policy_runs_is_aborted_and_not_denied() -> None:
    """The caller cancelled it: the call is recorded as aborted, and the `CancelledError` propagates."""
    begun = asyncio.Event()

    async def wait(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Engine([look], policies=[Policy(wait)]) as engine:
        running = asyncio.create_task(engine.call(call("look")))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [body["reason"] for body in bodies(engine, "call.aborted")] == ["the caller was cancelled"]


HOOKS = [
    ("before", "observe"),
    ("before", "reject"),
    ("before", "transform"),
    ("after", "observe"),
    ("after", "reject"),
    ("after", "transform"),
]


def hooked(phase: str, kind: Any, run: Callable[..., Any]) -> Any:
    return (before_call if phase == "before" else after_call)("look", kind=kind)(run)


def code_of_a_broken_hook(phase: str, kind: str) -> str | None:
    if kind == "observe":
        return None
    return "hook_failed" if phase == "before" else "rejected_by_hook"


@whatever_it_raises
@pytest.mark.parametrize(("phase", "kind"), HOOKS)
@pytest.mark.parametrize("how", ["at once", "in its first step", "after waiting"])
async def test_a_hook_that_raises_affects_only_its_own_call(error: BaseException, phase: str, kind: str, how: str) -> None:
    fail = raising_at_once(error) if how == "at once" else raising(error, how == "after waiting")
    async with Engine([look], hooks=[hooked(phase, kind, fail)], limits=LIMITS) as engine:
        given = await said(engine, call("look"))
        assert given.code == code_of_a_broken_hook(phase, kind)
        assert len(bodies(engine, "hook.failed")) == (kind == "observe")
        assert await works(engine)


@pytest.mark.parametrize(("phase", "kind"), HOOKS)
async def test_a_call_does_not_wait_for_a_hook_that_ignores_cancellation(phase: str, kind: str) -> None:
    stubborn = IgnoresCancellation()
    async with Engine([look], hooks=[hooked(phase, kind, stubborn.go_on)], limits=LIMITS) as engine:
        given = await said(engine, call("look"))
        assert given.code == code_of_a_broken_hook(phase, kind)
        assert stubborn.cancels == 1
        await stubborn.let_go()


async def test_a_context_variable_set_by_a_hook_is_visible_to_the_tool() -> None:
    """Tracing relies on this: a span that a hook begins must be current in the tool."""
    span: ContextVar[str] = ContextVar("span", default="")
    seen: list[str] = []

    @before_call("seen_by")
    async def begin(one: ValidatedCall) -> None:
        await asyncio.sleep(0)
        span.set("begun")

    @tool(effect="none")
    async def seen_by() -> str:
        """See."""
        seen.append(span.get())
        return ""

    async with Engine([seen_by], hooks=[begin]) as engine:
        await said(engine, call("seen_by"))
    assert seen == ["begun"]


@whatever_it_raises
@pytest.mark.parametrize("how", ["at once", "in its first step", "after waiting"])
async def test_a_restart_handler_that_raises_leaves_the_result(error: BaseException, how: str) -> None:
    fail = raising_at_once(error) if how == "at once" else raising(error, how == "after waiting")
    async with Engine([look], restart=fail, limits=LIMITS) as engine:
        assert (await said(engine, call("look"))).status == "ok"


async def test_a_call_does_not_wait_for_a_restart_handler_that_ignores_cancellation() -> None:
    stubborn = IgnoresCancellation()
    async with Engine([look], restart=stubborn.go_on, limits=LIMITS) as engine:
        assert (await said(engine, call("look"))).status == "ok"
        await stubborn.let_go()


@whatever_it_raises
async def test_a_bus_listener_that_raises_affects_neither_calls_nor_other_listeners(error: BaseException) -> None:
    heard: list[str] = []
    async with Engine([look, talks()], limits=LIMITS) as engine:
        engine.bus.subscribe(raising_at_once(error))
        engine.bus.subscribe(lambda topic, item: heard.append(topic))
        assert (await said(engine, call("talks"))).status == "ok"
        assert await works(engine)
        assert engine.bus.failures == len(heard)
    assert {"call.received", "call.progress", "call.completed", "tool.completed"} <= set(heard)


def talks() -> Tool:
    from callgate import ToolContext

    @tool(effect="none")
    async def talks(context: ToolContext) -> str:
        """Talk."""
        context.progress("hm")
        return ""

    return talks


class Fails:
    """A redactor, validator or `reads` function that raises."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, *_: object) -> NoReturn:
        raise self._error

    redact = __call__


@whatever_it_raises
async def test_a_validator_that_raises_refuses_its_call(error: BaseException) -> None:
    @tool(effect="none", name="look", validate=Fails(error))
    async def checked() -> str:
        """Look."""
        return ""

    async with Engine([checked]) as engine:
        assert (await said(engine, call("look"))).code == "validator_failed"
        assert set(ends(engine).values()) == {1}


@whatever_it_raises
@pytest.mark.parametrize("size", [1, 200_000], ids=["small", "large"])
async def test_a_result_is_withheld_when_its_redactor_raises(error: BaseException, size: int) -> None:
    class OfResults(Fails):
        def redact(self, body: bytes) -> bytes:  # type: ignore[override]
            if b"hunter2" in body:
                raise self._error
            return body

    @tool(effect="none")
    async def give() -> str:
        """Give."""
        return "hunter2 " * size

    async with Engine([give, look], redactor=OfResults(error)) as engine:
        given = await said(engine, call("give"))
        assert given.code == "redactor_failed"
        assert "hunter2" not in given.text
        assert await works(engine)


class Values(list[object]):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def __iter__(self) -> Iterator[object]:
        raise self._error


@whatever_it_raises
@pytest.mark.parametrize("runner", ["inline", "thread"])
async def test_a_result_that_raises_when_iterated_is_reported_as_non_serializable(error: BaseException, runner: Any) -> None:
    async def inline() -> object:
        """Give."""
        return Values(error)

    def threaded() -> object:
        """Give."""
        return Values(error)

    one = tool(name="give", effect="none", runner=runner)(inline if runner == "inline" else threaded)
    async with Engine([one, look]) as engine:
        given = await said(engine, call("give"))
        assert (given.code, type(error).__name__ in str(given.error)) == ("non_serializable", True)
        assert await works(engine)


@whatever_it_raises
async def test_an_arguments_mapping_that_raises_is_refused(error: BaseException) -> None:
    from callgate import RawCall

    class Arguments(dict[str, object]):
        def __iter__(self) -> Iterator[str]:
            raise error

        def items(self) -> Any:
            raise error

    async with Engine([look]) as engine:
        given = await said(engine, RawCall(name="look", arguments=Arguments(n=1)), Scope(run="r"))
        assert given.status == "error"
        assert await works(engine)


class MemoryWithClose:
    """A memory whose `close` runs a given function."""

    def __init__(self, close: Callable[..., Any]) -> None:
        self._close = close

    def follow(self, *_: object) -> None: ...

    async def close(self) -> None:
        await self._close()


@whatever_it_raises
async def test_the_engine_closes_when_its_memory_raises_on_close(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([look], memory=MemoryWithClose(raising(error, 1))) as engine:
        assert (await said(engine, call("look"))).status == "ok"
    assert "Memory: it could not be closed" in caplog.text


async def test_the_engine_closes_when_its_memory_ignores_cancellation_on_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate._pipeline.engine_assembly._MEMORY_END_S", 0.02)
    stubborn = IgnoresCancellation()
    async with Engine([look], memory=MemoryWithClose(stubborn.go_on), limits=LIMITS) as engine:
        assert (await said(engine, call("look"))).status == "ok"
    await stubborn.let_go()
