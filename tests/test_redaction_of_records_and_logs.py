"""A secret that the redactor knows is in no event, log line, bus item or shown text, whatever its source."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from callgate import (
    Answered,
    Engine,
    MemoryJournal,
    RawCall,
    Rules,
    Scope,
    Suspended,
    Tool,
    ToolContext,
    after_call,
    before_call,
    tool,
)
from callgate.agent import Agent
from callgate.calls import ToolResult
from callgate.events import Event, Progress
from callgate.protocols import Allow, Ask, Deny, Modify, Policy
from callgate.stage_types import ValidatedCall
from callgate.testing import ScriptedModel
from tests.engine_calls import call

SECRET = "hunter2-ä"


class Hider:
    """A redactor that hides one secret."""

    def redact(self, body: bytes) -> bytes:
        return body.replace(SECRET.encode(), b"[hidden]")


class Broken:
    """A redactor that raises an exception whose text contains the secret."""

    def redact(self, body: bytes) -> bytes:
        raise ValueError(SECRET)


@tool
async def plain(text: str = "") -> str:
    """Return."""
    return "ok"


@tool
async def talks(context: ToolContext) -> str:
    """Report progress, and return."""
    context.progress(f"my password is {SECRET}\n")
    return SECRET


@tool
def talks_in_a_thread(context: ToolContext) -> str:
    """Report progress from a thread, and return."""
    context.progress(f"my password is {SECRET}\n", stream=SECRET)
    return SECRET


@tool(effect="none")
async def raises() -> str:
    """Raise."""
    raise RuntimeError(f"cannot log in with {SECRET}")


class Says:
    """A policy that always gives the same verdict, or raises."""

    def __init__(self, verdict: Any) -> None:
        self._verdict = verdict

    async def decide(self, call: ValidatedCall) -> Any:
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict


@before_call("plain", kind="reject")
def rejects(call: ValidatedCall) -> str | None:
    return f"no {SECRET} here"


@before_call("plain", kind="transform")
def breaks(call: ValidatedCall) -> dict[str, object]:
    raise RuntimeError(SECRET)


@before_call("plain", kind="observe")
def observes(call: ValidatedCall) -> None:
    raise RuntimeError(SECRET)


@after_call("plain", kind="observe")
def observes_after(call: ValidatedCall, result: object) -> None:
    raise RuntimeError(SECRET)


class EngineOutput:
    """Collects all output of an engine: events, bus items and log lines."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.heard: list[str] = []

    def listen(self, topic: str, item: object) -> None:
        self.heard.append(topic)
        match item:
            case Event():
                self.heard.append(item.body.decode())
            case Progress():
                self.heard.append(f"{item.text} {item.stream}")
            case ToolResult():
                self.heard.append(repr(item))

    def told(self, caplog: pytest.LogCaptureFixture) -> str:
        record = "\n".join(event.body.decode() for event in self.journal.read())
        formatter = logging.Formatter()
        log = "\n".join(formatter.format(line) for line in caplog.records)
        return "\n".join([record, log, *self.heard])


TOOLS: list[Tool] = [plain, talks, talks_in_a_thread, raises]
ASKS = '[[rule]]\nid = "x"\nverdict = "ask"\nwhen = {{ "arguments.text" = {{ contains = "h" }} }}\nreason = "{}"\n'
CASES: dict[str, tuple[RawCall, dict[str, Any]]] = {
    "an argument": (call("plain", text=SECRET), {}),
    "an unknown name": (call(f"plain {SECRET}"), {}),
    "an almost right name": (RawCall(name=f"functions.{SECRET}", arguments="{}"), {}),
    "reasoning": (RawCall(name="plain", arguments="{}", reasoning=f"I use {SECRET}"), {}),
    "arguments that are no JSON": (RawCall(name="plain", arguments=f'{{"text": "{SECRET}'), {}),
    "an unknown argument": (RawCall(name="plain", arguments=json.dumps({SECRET: 1})), {}),
    "keys beside the arguments": (RawCall.from_dict({"tool": "plain", SECRET: SECRET}), {}),
    "an origin": (RawCall(name="plain", arguments="{}", origin=SECRET), {}),
    "progress": (call("talks"), {}),
    "progress from a thread": (call("talks_in_a_thread"), {}),
    "an exception": (call("raises"), {}),
    "a deny": (call("plain"), {"policies": [Says(Deny(reason=SECRET, rule=SECRET))]}),
    "an ask": (call("plain"), {"policies": [Says(Ask(question=SECRET, rule=SECRET))]}),
    "an allow": (call("plain"), {"policies": [Says(Allow(rule=SECRET))]}),
    "a change": (call("plain"), {"policies": [Says(Modify(arguments={"text": SECRET}, reason=SECRET))]}),
    "a policy that breaks": (call("plain"), {"policies": [Says(RuntimeError(SECRET))]}),
    "a rule's facts": (call("plain", text=SECRET), {"policies": [Rules.parse(ASKS.format("Really?"), where=SECRET)]}),
    "a hook that rejects": (call("plain"), {"hooks": [rejects]}),
    "a hook that breaks": (call("plain"), {"hooks": [breaks]}),
    "an observer that breaks": (call("plain"), {"hooks": [observes]}),
    "an observer after the call": (call("plain"), {"hooks": [observes_after]}),
}


async def tried(raw: RawCall, options: dict[str, Any], redactor: Any) -> tuple[EngineOutput, Any]:
    everything = EngineOutput()
    async with Engine(TOOLS, journal=everything.journal, redactor=redactor, repair=True, **options) as engine:
        engine.bus.subscribe(everything.listen)
        outcome = await engine.call(raw, Scope(conversation="c", principal="p"))
    return everything, outcome


@pytest.mark.parametrize("case", CASES)
async def test_a_secret_from_any_source_is_not_recorded_logged_or_published(case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="callgate")
    raw, options = CASES[case]
    everything, outcome = await tried(raw, options, Hider())
    told = everything.told(caplog)
    assert SECRET not in told
    assert SECRET not in json.dumps(told, ensure_ascii=False)
    assert SECRET not in repr(outcome)


@pytest.mark.parametrize("case", ["progress", "progress from a thread", "reasoning", "an unknown name", "an exception"])
async def test_a_failing_redactor_lets_no_secret_through(case: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the text to redact nor the text of the redactor's exception is shown."""
    caplog.set_level(logging.DEBUG, logger="callgate")
    raw, options = CASES[case]
    everything, outcome = await tried(raw, options, Broken())
    assert SECRET not in everything.told(caplog)
    assert SECRET not in repr(outcome)


async def test_the_reason_of_a_kill_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="callgate")
    everything = EngineOutput()
    async with Engine(TOOLS, journal=everything.journal, redactor=Hider()) as engine:
        engine.bus.subscribe(everything.listen)
        engine.control.kill("c", f"stop, {SECRET}")
        outcome = await engine.call(call("plain"), Scope(conversation="c"))
        asked = await engine.call(call("plain"), Scope(conversation="d"))
    assert SECRET not in everything.told(caplog)
    assert SECRET not in repr((outcome, asked))


async def test_the_answer_to_an_approval_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="callgate")
    everything = EngineOutput()
    policies: list[Policy] = [Says(Ask(question="Really?"))]
    async with Engine(TOOLS, journal=everything.journal, redactor=Hider(), policies=policies) as engine:
        engine.bus.subscribe(everything.listen)
        asked = await engine.call(call("plain"), Scope(run="r"))
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by=SECRET)
        answered = await engine.call(call("plain"), Scope(run="r"))
    assert isinstance(answered, Answered)
    assert SECRET not in everything.told(caplog)


async def test_the_failure_reason_of_a_run_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="callgate")
    everything = EngineOutput()

    def listen(event: object) -> None:
        raise RuntimeError(SECRET)

    engine = Engine(TOOLS, journal=everything.journal, redactor=Hider())
    async with engine, Agent(ScriptedModel(["Done."]), engine) as agent:
        result = await agent.run("Go.", on_event=listen)
    assert SECRET not in everything.told(caplog)
    assert SECRET not in str(result.reason)


async def test_log_lines_are_unchanged_without_a_redactor(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="callgate")
    await tried(RawCall(name="plain", arguments="{}", reasoning="I look"), {}, None)
    assert caplog.records[0].getMessage() == "Tool call: plain - I look"
    assert caplog.records[0].funcName == "prepare"
