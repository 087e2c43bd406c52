"""Tests of the result format, which is the same for function and class tools, every runner, success and every failure."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import msgspec
import pytest

from callgate import Aborted, Agent, Answered, Deny, Engine, RawCall, Scope, Tool, ToolResult, tool
from callgate.errors import FAILURE_CLASSES
from callgate.messages import function_response, openai_message
from callgate.protocols import Allow, Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import ManualClock
from callgate.tools import validate_tool_result
from tests.acceptance.process_tools import RUNNERS, answers, raises, run_by
from tests.agent.scripted_model import Script, says, tool_texts
from tests.agent.scripted_model import call as model_call
from tests.engine_calls import call, said


class Returns(Tool):
    """A tool that returns the value given by the test."""

    name = "returns"
    description = "Return something."
    parameters = {"type": "object", "properties": {}}
    category = "safe_chain"
    requires_actor = False

    def __init__(self, value: object) -> None:
        self.value = value

    async def execute(self, actor: str, **params: Any) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "the result is None"),
        ("text", "the result is a str; return a dict"),
        ([1, 2], "the result is a list; return a dict"),
        ({"success": "yes"}, "'success' is a str; it must be a bool"),
        ({"success": 1}, "'success' is a int; it must be a bool"),
        ({"success": False, "error": 5}, "'error' is a int; it must be a string"),
        ({"error": ["a"]}, "'error' is a list; it must be a string"),
    ],
)
async def test_a_result_of_the_wrong_shape_is_an_invalid_result(value: object, complaint: str) -> None:
    async with Engine([Returns(value)]) as engine:
        result = await said(engine, call("returns"))
    assert (result.status, result.failure_class, result.code) == ("error", "invalid_result", "invalid_result")
    assert complaint in str(result.error)
    assert any(complaint in fault for fault in validate_tool_result(value))


@pytest.mark.parametrize(
    ("value", "success", "data", "error"),
    [
        ({"success": True, "data": {"n": 1}}, True, {"n": 1}, None),
        ({"success": True, "error": None, "data": []}, True, [], None),
        ({"success": False, "error": "the door is locked", "data": {"door": 3}}, False, {"door": 3}, "the door is locked"),
        ({"n": 1}, True, {"n": 1}, None),
        ({"error": "broken"}, False, {"error": "broken"}, "broken"),
    ],
)
async def test_the_standard_result_keys_give_success_data_and_error(
    value: dict[str, Any], success: bool, data: object, error: str | None
) -> None:
    async with Engine([Returns(value)]) as engine:
        result = await said(engine, call("returns"))
    assert (result.success, result.data, result.error) == (success, data, error)
    assert result.failure_class == (None if success else "tool_declared")
    assert validate_tool_result(value) == []


async def test_a_success_has_id_status_content_and_metadata() -> None:
    @tool(effect="none")
    async def read() -> str:
        """Read."""
        return "é" * 20_000

    async with Engine([read]) as engine:
        result = await said(engine, call("read", id="call_7"))
    shown = msgspec.to_builtins(result)
    assert (shown["id"], shown["status"]) == ("call_7", "ok")
    assert [part["type"] for part in shown["content"]] == ["text", "text"]
    assert (result.metadata.bytes, result.metadata.truncated, result.metadata.mime) == (40_000, True, "text/plain")
    assert len(result.text.encode()) < 20_000
    assert engine.blobs.get(str(result.metadata.blob)) == ("é" * 20_000).encode()


@tool(effect="none")
async def broken() -> None:
    """Raise."""
    raise RuntimeError("the disk is full")


@tool(effect="none")
async def offline() -> None:
    """Connect to a service that does not answer."""
    raise TimeoutError("read timed out")


class NoPayments:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Deny(reason="payments are off") if call.name == "pay" else Allow()


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@tool(effect="none")
async def strange() -> object:
    """Return a value that is not JSON."""
    return object()


@tool(effect="none")
async def nan() -> float:
    """Return NaN."""
    return float("nan")


@tool(effect="none", timeout_s=0.02, retryable=False)
async def slow() -> None:
    """Take too long."""
    await asyncio.Event().wait()


@tool(effect="none")
async def find(text: str) -> dict[str, object]:
    """Find."""
    return {"found": False, "results": []}


def failures() -> Engine:
    return Engine(
        [broken, offline, pay, strange, nan, slow, find, Returns({"success": False, "error": "none left"})], policies=[NoPayments()]
    )


@pytest.mark.parametrize(
    ("raw", "failure_class", "words"),
    [
        (call("slow"), "timeout", "timed out"),
        (call("broken"), "exception", "the disk is full"),
        (RawCall(name="find", arguments='{"text": }'), "malformed_arguments", "JSON"),
        (RawCall(name="find", arguments="[1]"), "malformed_arguments", "object"),
        (RawCall(name="find", arguments='{"text": "a"', closed="cut"), "truncated_arguments", "Send the whole call again"),
        (call("find", text=5), "invalid_parameters", "expected text, got 5"),
        (call("find"), "invalid_parameters", "it is missing"),
        (call("strange"), "non_serializable", "object"),
        (call("nan"), "non_serializable", "the number nan"),
        (call("fetch"), "unknown_tool", "No tool is named 'fetch'"),
        (call("pay", amount=1), "denied", "payments are off"),
        (call("returns"), "tool_declared", "none left"),
    ],
)
async def test_every_failure_is_a_result_with_its_class_and_a_reason(raw: RawCall, failure_class: str, words: str) -> None:
    """No exception is raised, the message continues, and the next call is answered."""
    async with failures() as engine:
        outcome = await engine.call(raw)
        assert isinstance(outcome, Answered)
        result = outcome.result
        assert (await said(engine, call("find", text="a"))).success
    assert (result.status, result.failure_class) == ("error", failure_class)
    assert failure_class in FAILURE_CLASSES
    assert words in str(result.reason)
    assert result.reason == result.error
    assert json.loads(result.content[0].text)["status"] == "error"  # type: ignore[union-attr]


async def test_a_network_timeout_is_an_error_result() -> None:
    clock = ManualClock()
    async with Engine([offline], clock=clock) as engine:
        task = asyncio.create_task(said(engine, call("offline")))
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(10)
        result = await task
    assert (result.status, result.failure_class) == ("error", "exception")
    assert "read timed out" in str(result.reason)


async def test_an_agent_reads_a_network_timeout_and_continues() -> None:
    """The socket is a real one, whose server never answers."""

    @tool(effect="none", retryable=False)
    def fetch(port: int) -> str:
        """Fetch."""
        with socket.create_connection(("127.0.0.1", port), timeout=0.05) as connection:
            return connection.recv(1).decode()

    with socket.create_server(("127.0.0.1", 0)) as server:
        script = Script(says(model_call("fetch", {"port": server.getsockname()[1]})), says("It does not answer."))
        async with Agent(script, tools=[fetch]) as agent:
            result = await agent.run("Fetch it.")
    (text,) = tool_texts(script.seen[1])
    assert json.loads(text)["status"] == "error"
    assert "timed out" in json.loads(text)["error"]
    assert (result.turn_status, result.text) == ("completed", "It does not answer.")


@pytest.mark.parametrize("value", [[], {"results": []}, {"found": False}, None, "", 0, False, {"success": True, "data": []}])
async def test_an_empty_result_is_a_success_and_does_not_end_the_message(value: object) -> None:
    @tool(effect="none")
    async def search() -> object:
        """Search."""
        return value

    async with Engine([search]) as engine:
        outcomes = await engine.call_many([call("search"), call("search")])
    assert all(isinstance(outcome, Answered) and outcome.result.success for outcome in outcomes)


async def test_no_outcome_of_a_tool_ends_its_message() -> None:
    """Domain outcomes, refusals and failures are results; only an invalid call or a stop ends a message."""
    async with failures() as engine:
        names = ["broken", "strange", "slow", "returns", "no_such_tool"]
        outcomes = await engine.call_many([*(call(name) for name in names), call("pay", amount=1), call("pay"), call("find", text="a")])
        nameless = await engine.call_many([call("find", text="a"), RawCall(name="")])
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    assert isinstance(outcomes[-1], Answered)
    assert outcomes[-1].result.success
    assert isinstance(nameless[1], Aborted)


def shape(result: ToolResult) -> tuple[set[str], set[str]]:
    whole = json.loads(msgspec.json.encode(result))
    return set(whole), set(openai_message(result)) | set(function_response(result))


@pytest.mark.process
async def test_results_have_the_same_shape_for_every_runner() -> None:
    good: dict[str, ToolResult] = {}
    bad: dict[str, ToolResult] = {}
    for runner in RUNNERS:
        async with Engine([run_by(answers, runner), run_by(raises, runner)]) as engine:
            good[runner] = await said(engine, call("answers", id="c", n=1), Scope(run="r"))
            bad[runner] = await said(engine, call("raises", id="c", n=7), Scope(run="r"))
    assert {"no account 7" in str(result.error) for result in bad.values()} == {True}
    assert len({tuple(map(frozenset, shape(result))) for result in [*good.values(), *bad.values()]}) == 1
    for results in (good, bad):
        plain = {runner: msgspec.structs.replace(result, metadata=type(result.metadata)()) for runner, result in results.items()}
        assert plain["inline"] == plain["thread"] == plain["process"]
    assert (good["process"].data, good["process"].message, good["process"].end_turn) == ({"n": 1}, "done", True)


async def test_tool_messages_have_one_format_for_every_tool_and_outcome() -> None:
    async with failures() as engine:
        engine.register(Returns({"success": True, "data": 1}), layer="mcp")
        raws = [call("find", text="a"), call("returns"), call("broken"), call("pay", amount=1), call("nobody"), call("find", text=1)]
        results = [await said(engine, raw) for raw in raws]
    assert len({tuple(map(frozenset, shape(result))) for result in results}) == 1
    for result in results:
        message = openai_message(result)
        assert (message["role"], type(message["content"])) == ("tool", str)
        assert (result.error is None) is result.success
