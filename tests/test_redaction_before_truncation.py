"""A secret that spans the place where a text is truncated is redacted whole: no part of it is recorded, logged, published or shown."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from callgate import Engine, MemoryJournal, RawCall, Retryable, RetryPolicy, Scope, ToolContext, after_call, before_call, tool
from callgate.agent import Agent
from callgate.calls import ToolResult
from callgate.events import Event, Progress
from callgate.protocols import Ask, Deny, Modify
from callgate.stage_types import ValidatedCall
from callgate.testing import ScriptedModel
from tests.engine_calls import bodies, call

SECRET = "sk-Zq81vLw03TfXo59BnYc72HrKd64GmJp"
ENDS = (SECRET[:6], SECRET[-6:])


class Hider:
    """A redactor that hides one secret."""

    def redact(self, body: bytes) -> bytes:
        return body.replace(SECRET.encode(), b"[hidden]")


def text(before: int, after: int = 0) -> str:
    return "." * before + SECRET + "." * after


def near(*cuts: int) -> list[int]:
    """Places at which the secret lies across a cut, with room for what stands before the text.

    Every third: a cut that shows an end of it shows that at two dozen places in a row.
    """
    return sorted({place for cut in cuts for place in range(max(0, cut - len(SECRET) - 90), cut + 8, 3)})


@tool(effect="none")
async def plain(before: int = 0, after: int = 0, note: str = "", flag: bool = False) -> str:
    """Return."""
    return "ok"


@tool(effect="none")
async def raises(before: int, after: int = 0) -> str:
    """Raise."""
    raise RuntimeError(text(before, after))


@tool(effect="none")
async def returns_text_for_a_number(before: int, after: int = 0) -> list[int]:
    """Return text, although the annotation promises numbers."""
    return [text(before, after)]  # type: ignore[list-item]


@tool(effect="none")
async def returns_a_number(before: int, after: int = 0) -> list[int]:
    """Return a number."""
    return [before]


@before_call("plain", kind="transform")
def changes(given: ValidatedCall) -> dict[str, object]:
    return {"flag": text(int(str(given.arguments["before"])), 100)}


@after_call("returns_a_number", kind="transform")
def changes_the_result(given: ValidatedCall, checked: object) -> list[str]:
    return [text(int(str(given.arguments["before"])), 100)]


@tool(effect="none", runner="thread")
def raises_a_group(before: int, after: int = 0) -> str:
    """Raise a group of exceptions."""
    raise ExceptionGroup("several", [ValueError(text(before, after)), ValueError(text(after, before))])


@tool(effect="none", runner="thread")
def exits(before: int, after: int = 0) -> str:
    """Exit."""
    sys.exit(text(before, after))


@tool(effect="none", retry=RetryPolicy(attempts=2, base_s=0.0, max_s=0.0))
async def raises_again(before: int, after: int = 0) -> str:
    """Raise a retryable exception."""
    raise Retryable(text(before, after))


@tool(effect="none")
async def fails(before: int, after: int = 0) -> dict[str, object]:
    """Fail."""
    return {"success": False, "error": text(before, after)}


@tool(effect="none", runner="process")
def raises_in_a_process(before: int, after: int = 0) -> str:
    """Raise in a worker process."""
    raise RuntimeError(text(before, after))


class Says:
    """A policy whose verdict has the secret at the position that the arguments name."""

    def __init__(self, verdict: Callable[[str], Any]) -> None:
        self._verdict = verdict

    async def decide(self, call: ValidatedCall) -> Any:
        return self._verdict(_said(call))


def _said(call: ValidatedCall) -> str:
    return text(int(str(call.arguments["before"])), int(str(call.arguments.get("after", 0))))


@before_call("plain", kind="reject")
def rejects(call: ValidatedCall) -> str | None:
    return _said(call)


@before_call("plain", kind="transform")
def breaks(call: ValidatedCall) -> dict[str, object]:
    raise RuntimeError(_said(call))


@before_call("plain", kind="observe")
def observes(call: ValidatedCall) -> None:
    raise RuntimeError(_said(call))


@after_call("plain", kind="reject")
def rejects_the_result(call: ValidatedCall, result: object) -> str | None:
    return _said(call)


class EngineOutput:
    """Collects all output of an engine: events, bus items and log lines."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.heard: list[str] = []

    def listen(self, topic: str, item: object) -> None:
        match item:
            case Event():
                self.heard.append(item.body.decode())
            case Progress():
                self.heard.append(item.text)
            case ToolResult():
                self.heard.append(repr(item))

    def told(self, caplog: pytest.LogCaptureFixture) -> str:
        formatter = logging.Formatter()
        record = [event.body.decode() for event in self.journal.read()]
        return "\n".join([*record, *self.heard, *map(formatter.format, caplog.records)])


TOOLS = [plain, returns_text_for_a_number, returns_a_number, raises, raises_a_group, exits, raises_again, fails, raises_in_a_process]


def to(name: str, places: Iterable[int], after: int = 100_000) -> list[RawCall]:
    return [call(name, before=place, after=after) for place in places]


def at_the_end(name: str, cuts: Iterable[int]) -> list[RawCall]:
    """Return calls whose text has the secret at these distances from its end."""
    return [call(name, before=100_000, after=place) for place in cuts]


def raw(places: Iterable[int], **given: Callable[[str], Any]) -> list[RawCall]:
    made = [{field: make(text(place, 200_000)) for field, make in given.items()} for place in places]
    return [RawCall(**{"name": "plain", "arguments": '{"before": 1}', **one}) for one in made]


CASES: dict[str, tuple[list[RawCall], dict[str, Any]]] = {
    "an exception, its head": (to("raises", near(2_000, 2_048)), {}),
    "an exception, its tail": (at_the_end("raises", near(2_000)), {}),
    "an exception, at the first bound": (to("raises", near(32_768)), {}),
    "a short exception": (to("raises", near(2_000, 4_000), after=0), {}),
    "an exception that is larger with its secret": (to("raises", range(1_900, 2_050, 3), after=1_980), {}),
    "a group of exceptions": (to("raises_a_group", near(2_000), after=50_000), {}),
    "an exit": (to("exits", near(100, 200), after=150), {}),
    "an attempt that is made again": (to("raises_again", near(1_000, 2_000)), {}),
    "a failure that is returned": (to("fails", near(2_048, 4_096)), {}),
    "an exception in a process": (to("raises_in_a_process", near(2_000)[27::2]), {}),
    "the reasoning": (raw(near(4_096), reasoning=str), {}),
    "the id": (raw(near(4_096), id=str), {}),
    "the name": (raw(near(80, 200, 256, 4_096), name=str), {}),
    "a short name": ([RawCall(name=text(place), arguments="{}") for place in near(80, 200)], {}),
    "the origin": (raw(near(4_096), origin=str), {}),
    "the key": (raw(near(4_096), idempotency_key=str), {}),
    "arguments that are text": (raw(near(65_536), arguments=lambda said: json.dumps({"note": said})), {}),
    "arguments that are no JSON": (raw(near(65_536, 80, 300), arguments=lambda said: '{"note": ' + said), {}),
    "arguments that are a mapping": (raw(near(65_536), arguments=lambda said: {"note": said}), {}),
    "an argument of another kind": (raw(near(80), arguments=lambda said: {"flag": said}), {}),
    "an unknown argument": (raw(near(30, 80, 200), arguments=lambda said: {said: 1}), {}),
    "what stands beside the arguments": (raw(near(65_536), beside=lambda said: {"more": said}), {}),
    "a deny": (to("plain", near(2_048, 4_096)), {"policies": [Says(lambda said: Deny(reason=said, rule=said))]}),
    "a question": (to("plain", near(4_096)), {"policies": [Says(lambda said: Ask(question=said, rule=said))]}),
    "a change": (to("plain", near(500, 4_096)), {"policies": [Says(lambda said: Modify(arguments={"note": "n"}, reason=said))]}),
    "a change that is refused": (
        to("plain", near(80, 300)),
        {"policies": [Says(lambda said: Modify(arguments={"flag": said}, reason="x"))]},
    ),
    "an unknown change": (to("plain", near(30, 80)), {"policies": [Says(lambda said: Modify(arguments={said: 1}, reason="x"))]}),
    "a hook's change that is refused": (to("plain", near(80, 300)), {"hooks": [changes]}),
    "a result that its schema refuses": (to("returns_text_for_a_number", near(80, 300)), {}),
    "a hook's result that its schema refuses": (to("returns_a_number", near(80, 300)), {"hooks": [changes_the_result]}),
    "a hook that rejects": (to("plain", near(2_048, 4_096)), {"hooks": [rejects]}),
    "a hook that breaks": (to("plain", near(200)), {"hooks": [breaks]}),
    "an observer that breaks": (to("plain", near(200)), {"hooks": [observes]}),
    "a hook that rejects the result": (to("plain", near(2_048, 4_096)), {"hooks": [rejects_the_result]}),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_secret_across_a_truncation_point_is_redacted_whole(case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="callgate")
    calls, options = CASES[case]
    everything = EngineOutput()
    shown = []
    async with Engine(TOOLS, journal=everything.journal, redactor=Hider(), **options) as engine:
        engine.bus.subscribe(everything.listen)
        for one in calls:
            outcome = await engine.call(one, Scope(conversation="c", principal="p"))
            shown.append(repr(outcome).replace(repr(one.id), ""))
    told = "\n".join([everything.told(caplog), *shown])
    for end in ENDS:
        assert end not in told, told[max(0, told.index(end) - 200) : told.index(end) + 100]


@pytest.mark.parametrize("after", [0, 100_000])
async def test_a_secret_across_a_cut_in_the_last_text_or_failure_of_a_run_is_redacted_whole(
    after: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="callgate")
    everything = EngineOutput()
    shown = []
    async with Engine(TOOLS, journal=everything.journal, redactor=Hider()) as engine:
        engine.bus.subscribe(everything.listen)
        for place in near(2_000, 4_096):

            def listen(event: object, place: int = place) -> None:
                raise RuntimeError(text(place, after))

            async with Agent(ScriptedModel([text(place, after)]), engine) as agent:
                await agent.run("Go.")
            async with Agent(ScriptedModel(["Done."]), engine) as agent:
                shown.append(str((await agent.run("Go.", on_event=listen)).reason))
    told = "\n".join([everything.told(caplog), *shown])
    for end in ENDS:
        assert end not in told, told[max(0, told.index(end) - 200) : told.index(end) + 100]


@tool(effect="none", runner="process")
def prints_in_a_process(ctx: ToolContext, how: str) -> str:
    """Write output faster than it is shown."""
    for _ in range(60):
        for _ in range(40):
            written = SECRET * 50 + ".\n"
            ctx.progress(written) if how == "progress" else sys.stdout.write(written)
        time.sleep(0.001)
    ctx.progress("all is written")
    raise RuntimeError("broken")


@tool(effect="none", runner="thread")
def prints_in_a_thread(ctx: ToolContext, how: str) -> str:
    """Write output faster than it is shown."""
    for _ in range(2_400):
        ctx.progress(SECRET * 50 + ".\n")
    raise RuntimeError("broken")


class LengthPreservingRedactor:
    """A redactor that keeps the length of the text, so that the text is cut where it would be cut without redaction."""

    def redact(self, body: bytes) -> bytes:
        return body.replace(SECRET.encode(), b"#" * len(SECRET))


@pytest.mark.parametrize("redactor", [Hider(), LengthPreservingRedactor()], ids=["shorter", "as long"])
@pytest.mark.parametrize("kind", [prints_in_a_process, prints_in_a_thread], ids=lambda one: one.name)
@pytest.mark.parametrize("how", ["progress", "print"])
async def test_a_secret_across_a_gap_in_tool_output_is_redacted_whole(kind: Any, how: str, redactor: Any) -> None:
    """The output is four megabytes of nothing but the secret, so every gap in it has a part of the secret on both sides."""
    async with Engine([kind], redactor=redactor) as engine:
        await engine.call(call(kind.name, how=how))
        [recorded] = bodies(engine, "call.completed")
    partial = str(recorded["structured"]["partial_output"])  # type: ignore[index]
    assert len(partial) > 5_000
    assert not re.sub(r"^h?i?d?d?e?n?\]|#|\[hidden\]|[.\n]|\[\.\.\. \d+ [^\]]* \.\.\.\]|all is written", "", partial)
