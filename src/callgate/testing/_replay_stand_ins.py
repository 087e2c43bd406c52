"""Replacements for the repetition of a recorded run: a model with recorded answers, tools without code, a clock without waits.

All other parts are the real ones: the loop, the route, the rules. A tool's code is never run: its replacement has the same declaration, and
its runner returns the recorded result of the same tool with the same arguments.
"""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Set
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from callgate._abort_signals import Control
from callgate._clock import SystemClock
from callgate._json import canonical, decode
from callgate._pipeline.result_check import AttemptsResult, check
from callgate._pipeline.result_notes import content_and_notes
from callgate._run_state.settlements import EARLIER
from callgate.agent.run_recorder import BlobReader
from callgate.calls import ToolResult
from callgate.content_parts import Part, Text
from callgate.errors import CallFailed, UsageError
from callgate.messages import AssistantMessage
from callgate.models.model_events import CallOpened, CallSealed, Fault, Finished, ModelEvent, TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.protocols import Execution, RunRequest
from callgate.replay import RecordedPass, Replay, ReplayedCall
from callgate.testing._recorded_steps import FAILED
from callgate.tools import BoundTool, Tool
from callgate.tools.effect_evidence import Evidence

__all__ = ["RECORDED", "NoWaitClock", "RecordedModel", "RecordedResults", "accept_restart", "stand_in"]

RECORDED: Final = "recorded"
"""The name of the runner that returns recorded results."""
_STATUS: Final = {
    "tool_raised": "raised",
    "not_done": "raised",
    "timeout": "timed_out",
    "killed": "killed",
    "tool_crashed": "crashed",
    "not_started": "not_started",
}
"""The status of the runner's execution, by the code of the result."""
_PLAYED = frozenset({"completed", "function_call", "empty_response", "error"})
_RECORD_ENDS = "the record of the model's answers ends here"
_PLACEHOLDER = "\x00"
_RESTART = "context_restart_recorded"
_FRAME = frozenset({"status", "error", "code"})
"""The keys that the engine adds to a failure."""


class NoWaitClock(SystemClock):
    """A clock on which every wait ends at once."""

    async def sleep(self, seconds: float) -> None:
        return


def stand_in(tool: Tool) -> Tool:
    """Return the tool without its code. It has the same name, schema, checks and effect, and therefore the same identity."""
    replacement = copy.copy(tool)
    replacement.runner = RECORDED
    replacement.execute = _refuse_to_run  # type: ignore[method-assign]
    replacement.effect_key = None  # the result is recorded, also if another run's call had the effect
    return replacement


async def _refuse_to_run(*_: object, **__: object) -> dict[str, Any]:
    raise AssertionError("a stand-in has no code")


class RecordedModel:
    """A model that returns the recorded answers, pass by pass. A pass is one request to the model and its answer.

    Args:
        passes: The passes of the recorded run.
        name: The recorded model's name, `provider:model`.
        on_end: Called with the reason if a recorded pass did not end normally, or the record has ended,
            so that the run cannot continue.
        on_pass: Called with the position of each recorded pass before its answer is given.
        ends_open: The record ends before the run did, so that a request beyond it is its end and no mistake.
    """

    native_tools = True

    def __init__(
        self,
        passes: tuple[RecordedPass, ...],
        name: str,
        on_end: Callable[[str], None],
        on_pass: Callable[[int], None],
        *,
        ends_open: bool = False,
    ) -> None:
        self.provider, _, self.name = name.partition(":")
        self.asked = 0
        self._passes = passes
        self._on_end = on_end
        self._on_pass = on_pass
        self._ends_open = ends_open

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        number, self.asked = self.asked, self.asked + 1
        if number >= len(self._passes):
            if self._ends_open:
                self._on_end(_RECORD_ENDS)
                yield Finished(reason="cut", message=AssistantMessage())
                return
            raise UsageError(f"The recording has {len(self._passes)} answers of the model, and one more was requested.")
        one = self._passes[number]
        self._on_pass(one.position)
        if one.status == FAILED:
            raise UsageError("The model failed here, as the record says.")
        message = one.answer or AssistantMessage()
        if one.status not in _PLAYED:
            self._on_end(one.reason or _RECORD_ENDS)
        if message.text:
            yield TextDelta(message.text)
        for position, call in enumerate(message.calls):
            closed: Any = one.closed[position] if position < len(one.closed) else "sealed"
            yield CallOpened(position, call.id, call.name)
            yield CallSealed(position, call, closed)
        yield _finish_of_pass(one, message)


def _finish_of_pass(one: RecordedPass, message: AssistantMessage) -> Finished:
    if one.status == "error":
        return Finished(reason="error", message=message, fault=Fault(code=RECORDED, message=one.reason))
    reason: Any = one.finish or ("tool_calls" if message.calls else "stop")
    return Finished(reason=reason if one.status in _PLAYED else "cut", message=message)


class RecordedResults:
    """A runner that returns recorded results.

    Args:
        replay: The recorded run.
        blobs: The store of whole results.
        control: Kills the conversation if the user killed a recorded call.
    """

    def __init__(self, replay: Replay, blobs: BlobReader, control: Callable[[], Control]) -> None:
        self._blobs = blobs
        self._control = control
        self._waiting: dict[tuple[str, bytes], deque[ReplayedCall]] = defaultdict(deque)
        self._taken: dict[str, ReplayedCall] = {}
        self.missing: list[str] = []
        """The uids of calls without a recorded result."""
        own = {call.uid for call in replay.calls}
        for call in replay.calls:
            if call.decision is not None and call.decision.word == "allow" and not call.parent and not _waits_for_other_call(call, own):
                self._waiting[call.tool, canonical(decode(call.decision.arguments))].append(call)

    async def run(self, request: RunRequest) -> Execution:
        """Return the recorded end of this call."""
        approved, uid = request.approved, request.context.uid
        waiting = self._waiting[approved.call.tool.name, approved.encoded]
        call = self._taken.get(uid) or (waiting.popleft() if waiting else None)
        if call is None:
            self.missing.append(uid)
            return Execution(status="raised", error="the record has no result of this call", evidence="not_done")
        self._taken[uid] = call
        if call.ended == "restarted":
            return Execution(status="returned", value={"type": _RESTART, "success": True})
        if call.ended == "open":
            return Execution(status="crashed", error="the record has no end of this call")
        if call.result is None:
            reason = call.reason or f"the recorded call {call.ended}"
            self._control().kill(request.context.scope.conversation, reason)
            return Execution(status="killed", error=reason)
        return _recorded_execution(approved.call.tool, call.result, request.attempt, self._blobs)

    async def close(self) -> None:
        """Do nothing: no tool runs."""


def _waits_for_other_call(call: ReplayedCall, own: Set[str]) -> bool:
    """Return whether a call never reached its tool because the outcome of another call of the run was unknown."""
    return call.ended == "unknown" and call.result is not None and _shown_failure(call.result).get(EARLIER) in own - {call.uid}


def _recorded_execution(tool: BoundTool, result: ToolResult, attempt: int, blobs: BlobReader) -> Execution:
    """Return the execution that the engine converts to this result."""
    if result.status == "ok" and _has_parts(result):
        return Execution(status="returned", value=result.structured, content=_returned_parts(result), read=True)
    if result.status == "ok":
        return Execution(status="returned", value=_recorded_value(result, blobs))
    if result.code == "tool_declared":
        return Execution(status="returned", value=_shown_failure(result).get("result", result.structured))
    return _failed_execution(tool, result, is_last=attempt >= result.metadata.attempts)


def _failed_execution(tool: BoundTool, result: ToolResult, *, is_last: bool) -> Execution:
    """Return the execution that the engine converts to this failure.

    The engine adds words of its own to the error of a tool. They are found by converting a placeholder, and removed from the recorded text.
    """
    status: Any = _STATUS.get(result.code or "")
    if status is None:
        raise _recorded_failure(result)
    details = {key: value for key, value in _shown_failure(result).items() if key not in _FRAME} or None
    execution = Execution(status=status, error=_PLACEHOLDER, details=details, evidence=_evidence(tool, result, status))
    converted = check(tool, AttemptsResult(execution, max(1, result.metadata.attempts)), 0.0, None).error or ""
    prefix, _, suffix = converted.partition(_PLACEHOLDER)
    error = result.error or ""
    if error.startswith(prefix) and error.endswith(suffix):
        error = error[len(prefix) : len(error) - len(suffix)]
    elif is_last:  # the engine had other words for it, for example because there was no time left for another attempt
        raise _recorded_failure(result)
    # A timeout is tried again whatever `retryable` says, unless the wait before that is too long, as it was in the recorded call.
    return replace(execution, error=error, retryable=not is_last, retry_after_s=inf if is_last else None)


def _evidence(tool: BoundTool, result: ToolResult, status: str) -> Evidence:
    """Return what the tool's exception must prove, so that the engine marks the result as recorded, unknown or not."""
    if status != "raised" or tool.effect == "none":
        return ""
    if result.code == "not_done":
        return "not_done"
    if result.status == "error" and tool.effect == "once":
        raise _recorded_failure(result)
    return "reply_lost" if result.status == "unknown" else ""


def _recorded_value(result: ToolResult, blobs: BlobReader) -> object:
    """Return the tool's value from its recorded bytes, with its keys in the tool's order."""
    if result.metadata.content_key:
        if result.structured is None:
            raise _recorded_failure(result)
        return result.structured
    whole = blobs.get(result.metadata.blob) if result.metadata.blob is not None else _first_text(result).encode()
    if whole is None:
        raise _recorded_failure(result)
    return whole.decode() if result.metadata.mime == "text/plain" else decode(whole)


def _has_parts(result: ToolResult) -> bool:
    """Return whether the tool returned parts, such as images, instead of one value."""
    mime = result.metadata.mime
    if any(note.kind == "replayed" for note in result.metadata.notes):  # the note stands in the content, beside the value
        return True
    if result.metadata.content_key:
        return False
    if any(not isinstance(part, Text) for part in result.content) or mime not in ("text/plain", "application/json"):
        return True
    return mime == "text/plain" and isinstance(result.structured, list)


def _returned_parts(result: ToolResult) -> tuple[Part, ...]:
    """Return the parts of a result without the notes that the engine adds again: all but the one about the call that was made before."""
    content, notes = content_and_notes(result)
    about_earlier = {f"Note: {note.text}" for note in result.metadata.notes if note.kind == "replayed"}
    return (*content, *(part for part in notes if isinstance(part, Text) and part.text in about_earlier))


def _shown_failure(result: ToolResult) -> dict[str, Any]:
    """Return the failure that the model was shown, as data; empty if the model was shown only a part of it."""
    try:
        told = decode(_first_text(result))
    except ValueError:
        return result.structured if isinstance(result.structured, dict) else {}
    return told if isinstance(told, dict) else {}


def _first_text(result: ToolResult) -> str:
    first = result.content[0] if result.content else None
    return first.text if isinstance(first, Text) else ""


async def accept_restart(data: object) -> bool:
    """Accept the results of calls that added to the context; the added context is not stored."""
    return isinstance(data, dict) and data.get("type") == _RESTART


def _recorded_failure(result: ToolResult) -> CallFailed:
    """Return an error that the engine converts to this result, with the recorded text."""
    kind: Any = type("RecordedFailure", (CallFailed,), {"failure_class": result.failure_class, "status": result.status})
    details = {key: value for key, value in _shown_failure(result).items() if key not in _FRAME} or None
    failure: CallFailed = kind(result.error or "The whole of this result is gone from the record.", code=result.code, details=details)
    return failure
