"""Tests of the events published while a call runs and ends, and of the hooks around a call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Allow, Deny, Engine, MemoryJournal, Scope, ToolContext, ToolResult, after_call, before_call, tool
from callgate.builtins import command_tools
from callgate.events import Progress
from callgate.hooks import Hook
from callgate.protocols import Policy, Verdict
from callgate.stage_types import Checked, ValidatedCall
from tests.acceptance.process_tools import RUNNERS, run_by, talks
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.engine_calls import call, kinds, said


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS[1:])
async def test_partial_output_is_published_while_the_tool_runs(runner: str, tmp_path: Path) -> None:
    """The tool returns only after its output was received, so the output was published before the call ended."""
    heard: list[Progress] = []
    gate = tmp_path / "gate"

    def listen(topic: str, item: object) -> None:
        assert topic == "call.progress"
        assert isinstance(item, Progress)
        heard.append(item)
        if "two" in item.text:
            gate.touch()

    async with Engine([run_by(talks, runner)], timeout_s=120) as engine:
        engine.bus.subscribe(listen, "call.progress")
        result = await said(engine, call("talks", gate=str(gate)))
        assert all("progress" not in kind for kind in kinds(engine))
    assert result.text == "the end"
    assert [(item.text, item.stream) for item in heard] == [("one ", "progress"), ("two", "stdout")]
    assert [item.seq for item in heard] == [1, 2]
    assert {item.call for item in heard} == {result.uid}


async def test_output_of_an_async_tool_is_published_immediately() -> None:
    heard = asyncio.Event()

    @tool(effect="none")
    async def talk(ctx: ToolContext) -> str:
        """Report progress, and wait until it was received."""
        ctx.progress("here")
        await heard.wait()
        return "the end"

    async with Engine([talk], timeout_s=120) as engine:
        engine.bus.subscribe(lambda topic, item: heard.set(), "call.progress")
        assert (await said(engine, call("talk"))).text == "the end"


@pytest.mark.process
async def test_output_of_a_command_is_published_while_it_runs(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []

    def listen(topic: str, item: object) -> None:
        assert isinstance(item, Progress)
        heard.append((item.stream, item.text))
        (tmp_path / "gate").touch()

    script = "echo first; until [ -e gate ]; do sleep 0.02; done; echo last"
    async with Engine(command_tools(), timeout_s=120) as engine:
        engine.bus.subscribe(listen, "call.progress")
        result: Any = (await said(engine, call("run_command", command=script), Scope(workspace=str(tmp_path)))).structured
    assert (result["exit_code"], result["stdout"]) == (0, "first\nlast\n")
    assert "".join(text for stream, text in heard if stream == "stdout") == "first\nlast\n"
    assert heard[0] == ("stdout", "first\n")


async def test_every_result_is_published_as_tool_completed() -> None:
    """Every listener receives the same result as the caller; a listener that raises affects neither the call nor other listeners."""
    heard: list[object] = []

    @tool(effect="none")
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def breaks(topic: str, item: object) -> None:
        raise RuntimeError("the screen is gone")

    async with Engine([add]) as engine:
        engine.bus.subscribe(breaks, "tool.completed")
        end = engine.bus.subscribe(lambda topic, item: heard.append((topic, item)), "tool.completed")
        results = [await said(engine, call("add", a=1, b=2)), await said(engine, call("add", a="x", b=2)), await said(engine, call("nope"))]
        assert heard == [("tool.completed", result) for result in results]
        assert engine.bus.failures == 3
        end()
        await said(engine, call("add", a=1, b=2))
    assert len(heard) == 3


@tool(effect="none")
async def read(path: str) -> str:
    """Read."""
    return f"the password of {path} is hunter2"


async def test_after_call_hooks_run_before_the_result_is_returned() -> None:
    """The hooks run on the tool's value before the caller, the journal or the bus receives the result."""
    order: list[str] = []
    journal = MemoryJournal()

    @after_call("read")
    async def watch(call: ValidatedCall, result: Checked) -> None:
        assert "hunter2" in str(result.value)
        assert "call.completed" not in [event.kind for event in journal.read(call=call.uid)]
        order.append("hook")

    async with Engine([read], hooks=[watch], journal=journal) as engine:
        engine.bus.subscribe(lambda topic, item: order.append(topic), "call.completed", "tool.completed")
        await said(engine, call("read", path="a"))
        order.append("caller")
    assert order == ["hook", "call.completed", "tool.completed", "caller"]


async def test_an_after_call_hook_can_observe_transform_or_reject() -> None:
    seen: list[tuple[str, str]] = []

    @after_call("read", priority=1)
    def audit(call: ValidatedCall, result: Checked) -> str:
        seen.append((call.name, result.status))
        return "an observer's answer means nothing"

    @after_call("read", kind="transform", priority=2)
    def redact(call: ValidatedCall, result: Checked) -> str:
        return str(result.value).replace("hunter2", "[hidden]")

    @after_call("read", kind="transform", priority=3)
    def shorten(call: ValidatedCall, result: Checked) -> str:
        return str(result.value)[:24]

    @after_call("read", kind="reject", priority=4)
    def refuse(call: ValidatedCall, result: Checked) -> str | None:
        return "root's files are not for models" if call.arguments["path"] == "/root" else None

    async with Engine([read], hooks=[refuse, shorten, redact, audit]) as engine:
        shown = await said(engine, call("read", path="a"))
        kept = await said(engine, call("read", path="/root"))
        record = b"".join(event.body for event in engine.journal.read())
    assert seen == [("read", "ok"), ("read", "ok")]
    assert shown.text == "the password of a is [hi"
    assert (kept.status, kept.failure_class, kept.structured) == ("error", "rejected_by_hook", None)
    assert "root's files are not for models" in kept.text
    assert "password" not in kept.text
    assert b"hunter2" not in record


async def test_every_call_passes_policies_and_hooks_in_a_fixed_order() -> None:
    order: list[str] = []

    @tool
    async def act(n: int) -> str:
        """Act."""
        order.append("tool")
        return "done"

    class Judge:
        async def decide(self, call: ValidatedCall) -> Verdict:
            order.append("policy")
            return Allow()

    @before_call()
    def before(call: ValidatedCall) -> None:
        order.append("before")

    @after_call()
    def after(call: ValidatedCall, result: Checked) -> None:
        order.append("after")

    @before_call(kind="transform")
    def rewrite(call: ValidatedCall) -> None:
        order.append("rewrite")

    async with Engine([act], policies=[Judge()], hooks=[after, before, rewrite]) as engine:
        await said(engine, call("act", n=1))
        await engine.call_many([call("act", n=2)])
    assert order == ["rewrite", "policy", "before", "tool", "after"] * 2


async def run_agent(engine: Engine) -> list[ToolResult]:
    """Return the results of an agent whose model makes three calls. Nothing in it depends on any hook."""
    calls = [says(model_call("read", {"path": path}, id=path)) for path in ("a", "b", "c")]
    async with Agent(Script(*calls, says("Done.")), engine) as agent:
        done = await agent.run("Read.")
    assert done.completed
    return list(done.results)


async def test_hooks_and_policies_audit_redact_limit_and_deny_without_changing_the_agent() -> None:
    audited: list[object] = []

    @before_call()
    def audit(call: ValidatedCall) -> None:
        audited.append(call.arguments["path"])

    @after_call(kind="transform")
    def redact(call: ValidatedCall, result: Checked) -> str:
        return str(result.value).replace("hunter2", "[hidden]")

    class TwoAtMost:
        calls = 0

        async def decide(self, call: ValidatedCall) -> Verdict:
            self.calls += 1
            return Allow() if self.calls <= 2 else Deny(reason="two reads an hour; wait")

    class NotB:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason="b is private") if call.arguments["path"] == "b" else Allow()

    async def outcome(hooks: list[Hook], policies: list[Policy]) -> list[str]:
        async with Engine([read], hooks=hooks, policies=policies) as engine:
            return [result.text for result in await run_agent(engine)]

    plain = await outcome([], [])
    assert plain == [f"the password of {path} is hunter2" for path in "abc"]
    assert await outcome([audit], []) == plain
    assert audited == ["a", "b", "c"]
    assert await outcome([redact], []) == [f"the password of {path} is [hidden]" for path in "abc"]
    limited = await outcome([], [TwoAtMost()])
    assert limited[:2] == plain[:2]
    assert "two reads an hour" in limited[2]
    denied = await outcome([], [NotB()])
    assert (denied[0], denied[2]) == (plain[0], plain[2])
    assert "b is private" in denied[1]
