"""Tests of the scope and context that are passed to another process, over pipes and over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from examples.remote_runner.near import RemoteRunner

from callgate import Limits, Scope
from callgate._clock import SystemClock
from callgate._runners.process import ProcessRunner
from callgate.protocols import Runner
from tests.runners import hostile_tools
from tests.runners.conftest import LIMITS
from tests.runners.far_side import Far
from tests.runners.runner_requests import Made

pytestmark = pytest.mark.process


@pytest.fixture(params=["process", "behind a socket"])
async def runner(request: pytest.FixtureRequest, marker: str, far: Far) -> AsyncIterator[ProcessRunner | RemoteRunner]:
    made = ProcessRunner(Limits(), SystemClock(), LIMITS) if request.param == "process" else far.runner()
    yield made
    await made.close()


async def test_plain_values_of_the_context_are_passed_to_the_other_process(runner: Runner) -> None:
    scope = Scope(principal="ann", allowed_tools=frozenset({"facts"}), extra={"locale": ["de", 1]})
    made = Made(hostile_tools.facts, scope=scope, timeout_s=120.0)
    found = (await runner.run(made.request)).value
    assert isinstance(found, dict)
    assert 0 < found.pop("left") <= 120
    assert found == {
        "call_id": "call_1",
        "uid": made.uid,
        "key": "key",
        "attempt": 1,
        "allowed": ["facts"],
        "principal": "ann",
        "extra": {"locale": ["de", 1]},
        "marker": made.uid,
    }


async def test_using_a_live_scope_object_in_another_process_explains_its_absence(runner: Runner) -> None:
    execution = await runner.run(Made(hostile_tools.uses_extra, scope=Scope(extra=asyncio.Lock())).request)
    assert execution.status == "raised"
    assert "scope.extra is a live Lock" in execution.error


async def test_an_oversized_scope_value_is_not_passed_and_its_use_explains_why(runner: Runner) -> None:
    """Checking such a value must not block the event loop for long."""
    much: tuple[object, ...] = ({"rows": [[] for _ in range(250_001)]}, ["x" * 40_000_000, "x" * 40_000_000])
    for extra in much:
        execution = await runner.run(Made(hostile_tools.uses_extra, scope=Scope(extra=extra)).request)
        assert execution.status == "raised"
        assert f"scope.extra is a {type(extra).__name__} of more than 250000 values" in execution.error


class Counted(str):
    """A string that counts calls of its `__len__`."""

    looks = 0

    def __len__(self) -> int:
        Counted.looks += 1
        return super().__len__()


async def test_checking_a_scope_with_repeated_values_takes_bounded_work(runner: Runner) -> None:
    extra: list[object] = [Counted("x")]
    for _ in range(16):
        extra = extra * 10
        extra = [extra] * 10
    execution = await runner.run(Made(hostile_tools.uses_extra, scope=Scope(extra=extra)).request)
    assert "more than 250000 values" in execution.error
    assert Counted.looks <= 250_000
