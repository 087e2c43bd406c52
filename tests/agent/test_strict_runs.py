"""The five kinds of failure that end a worker before its answer, each by itself; nothing else ends it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, get_args

import pytest

from callgate import Tool, tool
from callgate.agent import Agent, RunResult
from callgate.calls import Effect
from callgate.messages import ToolCall
from callgate.policy import Deny
from callgate.tools.retry_policy import RetryPolicy
from tests.agent.scripted_model import Script, call, says

ONCE = RetryPolicy(attempts=1)


class Odd:
    """An object that has no JSON form."""


def circular() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


NO_JSON = [Odd(), {"a": Odd()}, {Odd()}, float("nan"), {"a": [float("inf")]}, circular(), lambda: None]


def tools(effect: Effect, value: object = None, *, released: threading.Event | None = None) -> list[Tool]:
    """Return a tool for each way to fail, all with the same effect."""

    @tool(effect=effect, timeout_s=0.02, retry=ONCE)
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    @tool(effect=effect, timeout_s=0.02, retry=ONCE)
    def wait_in_thread() -> str:
        """Wait for ever, in a thread."""
        assert released is not None
        released.wait(10)
        return "late"

    @tool(effect=effect, retry=ONCE)
    async def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    @tool(effect=effect, retry=ONCE)
    def fail_in_thread() -> str:
        """Fail, in a thread."""
        raise SystemExit(3)

    @tool(effect=effect)
    async def give() -> Any:
        """Return what the test wants."""
        return value

    @tool(effect=effect)
    async def look(what: int) -> str:
        """Look."""
        return "seen"

    return [wait, wait_in_thread, fail, fail_in_thread, give, look]


async def worked(made: list[Tool], asked: ToolCall, **options: Any) -> RunResult:
    """Run a worker whose model writes a text and a call, and then an answer."""
    model = Script(says("I try.", asked), says("Done."))
    async with Agent(model, tools=made, preset="worker", **options) as agent:
        return await agent.run("Go.")


KILLS: dict[str, tuple[ToolCall, str, set[str | None]]] = {
    "E8 timeout": (call("wait"), "tool_execution_error", {"timeout"}),
    "E8 timeout of a thread": (call("wait_in_thread"), "tool_execution_error", {"timeout"}),
    "E9 exception": (call("fail"), "tool_execution_error", {"exception"}),
    "E9 exit of a thread": (call("fail_in_thread"), "tool_execution_error", {"exception"}),
    "E10 no JSON": (call("look", "{what: 1}"), "tool_parse_error", {"malformed_arguments"}),
    "E10 no object": (call("look", "[1]"), "tool_parse_error", {"malformed_arguments"}),
    "E10 half": (call("look", '{"what": '), "tool_parse_error", {"malformed_arguments", "truncated_arguments"}),
    "E10 wrong type": (call("look", {"what": "much"}), "tool_parse_error", {"invalid_parameters"}),
    "E10 missing": (call("look", {}), "tool_parse_error", {"invalid_parameters"}),
    "E12 unknown": (call("gaze", {"what": 1}), "tool_parse_error", {"unknown_tool"}),
}


@pytest.mark.parametrize("effect", get_args(Effect))
@pytest.mark.parametrize("way", KILLS)
async def test_each_execution_or_parse_failure_ends_a_strict_run(way: str, effect: Effect) -> None:
    """Requirements E7 to E10, E12: the run keeps its text, its result and its history."""
    asked, status, classes = KILLS[way]
    released = threading.Event()
    try:
        result = await worked(tools(effect, released=released), asked)
    finally:
        released.set()
    assert (result.status, result.turn_status, result.text) == ("failed", status, "I try.")
    assert result.results[0].failure_class in classes
    assert len(result.messages) == 3
    assert result.reason.startswith(f"{asked.name}: ")


@pytest.mark.parametrize("effect", get_args(Effect))
@pytest.mark.parametrize("value", NO_JSON, ids=["object", "inside", "set", "nan", "inf", "circular", "function"])
async def test_a_result_that_cannot_be_written_as_json_ends_a_strict_run(value: object, effect: Effect) -> None:
    """Requirement E11: it counts as an error of the tool's implementation, whatever effect the tool had."""
    result = await worked(tools(effect, value), call("give"))
    assert (result.turn_status, [one.failure_class for one in result.results]) == ("tool_execution_error", ["non_serializable"])


class Never:
    """A policy that denies every call."""

    async def decide(self, call: object) -> Deny:
        return Deny(reason="not here")


DATA: list[object] = [
    [],
    {"results": []},
    {"found": False},
    None,
    "",
    0,
    {"success": True, "data": []},
    {"success": False, "error": "no such page"},
]


@pytest.mark.parametrize("effect", get_args(Effect))
@pytest.mark.parametrize("value", DATA)
async def test_data_results_reported_failures_and_denials_do_not_end_a_strict_run(value: object, effect: Effect) -> None:
    """Requirements E7, E13: a result is data, also if it reports a failure; a denial is data as well."""
    result = await worked(tools(effect, value), call("give"))
    assert (result.status, result.text, len(result.results)) == ("completed", "Done.", 1)
    denied = await worked(tools(effect), call("give"), policies=[Never()])
    assert (denied.text, [one.failure_class for one in denied.results]) == ("Done.", ["denied"])
