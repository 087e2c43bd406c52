"""A tool's `timeout_s` limits its whole call; `attempt_timeout_s` limits one attempt. The result says how many attempts were made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Engine, Retryable, RetryPolicy, tool
from tests.engine_calls import bodies, call, said

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)


def hanging_coroutine(let_go: threading.Event) -> Callable[..., Any]:
    async def ask() -> str:
        """Ask a service that never answers."""
        await asyncio.Event().wait()
        return ""

    return ask


def hanging_function(let_go: threading.Event) -> Callable[..., Any]:
    def ask() -> str:
        """Ask a service that never answers."""
        let_go.wait()
        return ""

    return ask


@pytest.mark.parametrize("hanging", [hanging_coroutine, hanging_function], ids=["coroutine", "thread"])
@pytest.mark.parametrize("effect", ["none", "idempotent", "once"])
async def test_a_call_that_hangs_is_tried_once_within_the_timeout_of_its_tool(hanging: Callable[..., Any], effect: Any) -> None:
    """With the default retry policy and the real clock, as a bare `timeout_s` has them."""
    let_go = threading.Event()
    try:
        async with Engine([tool(hanging(let_go), effect=effect, timeout_s=0.1)]) as engine:
            result = await said(engine, call("ask"))
            starts = bodies(engine, "call.started")
    finally:
        let_go.set()
    assert [body["timeout_s"] for body in starts] == [0.1]
    assert "ask timed out: it did not end within 0.1 s. It was tried once." in result.text


@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_the_result_of_a_call_whose_attempts_all_hang_says_how_many_there_were(effect: Any) -> None:
    @tool(effect=effect, attempt_timeout_s=0.02, retry=QUICK)
    async def ask() -> None:
        """Ask a service that never answers."""
        await asyncio.Event().wait()

    async with Engine([ask]) as engine:
        result = await said(engine, call("ask"))
    assert "ask timed out: it did not end within 0.02 s. It was tried 4 times." in result.text


async def test_attempts_that_hang_are_retried_only_within_the_timeout_of_the_tool() -> None:
    """The wait after the first attempt would end after the call's time, so that there is no second attempt."""

    @tool(effect="none", timeout_s=0.5, attempt_timeout_s=0.02, retry=RetryPolicy(base_s=0.6, jitter=False))
    async def ask() -> None:
        """Ask a service that never answers."""
        await asyncio.Event().wait()

    async with Engine([ask]) as engine:
        result = await said(engine, call("ask"))
    assert "It was tried once." in result.text
    assert result.metadata.attempts == 1


@pytest.mark.parametrize("hanging", [hanging_coroutine, hanging_function], ids=["coroutine", "thread"])
@pytest.mark.parametrize("limit", ["tool", "engine", "before the attempt's"])
async def test_a_later_attempt_that_hangs_is_reported_with_the_timeout_of_the_call(hanging: Callable[..., Any], limit: str) -> None:
    let_go, starts = threading.Event(), iter([True, False])
    hang, of_attempt = hanging(let_go), 60.0 if limit == "before the attempt's" else None

    def ask() -> Any:
        """Ask a service that refuses once and then never answers."""
        if next(starts):
            raise Retryable("busy")
        return hang()

    declared = tool(ask, effect="none", timeout_s=None if limit == "engine" else 0.25, attempt_timeout_s=of_attempt, retry=QUICK)
    try:
        async with Engine([declared], timeout_s=0.25 if limit == "engine" else 50) as engine:
            result = await said(engine, call("ask"))
    finally:
        let_go.set()
    assert "ask timed out: the call's timeout of 0.25 s is over. It was tried 2 times." in result.text
