"""The events of `callgate run`, for the screen and for `--json`.

Combines the agent's events (text, passes, notices) with those of calls from the engine's bus, as they happen. Decides nothing, draws
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from callgate._call_summary import body_of
from callgate.agent.run_events import AgentEvent, MessageBegan, MessageEnded, Notice
from callgate.calls import ToolResult
from callgate.events import Bus, Event, Progress
from callgate.models.model_events import CallOpened, Finished, ReasoningDelta, TextDelta

__all__ = [
    "ApprovalAnswered",
    "ApprovalAsked",
    "CallAnswered",
    "CallArrived",
    "CallOpening",
    "CallOutput",
    "CallRetried",
    "CallRunning",
    "CommandEvent",
    "ModelMessageBegan",
    "Noticed",
    "PassEnded",
    "ReasoningWritten",
    "RunBegan",
    "RunEventStream",
    "RunFinished",
    "RunInterrupted",
    "TextWritten",
]


class RunBegan(Struct, frozen=True, kw_only=True, tag_field="event", tag="run_began"):
    run: str
    model: str
    tools: tuple[str, ...]
    workspace: str
    record: str
    problems: tuple[str, ...] = ()
    """Why MCP servers, or tools of theirs, cannot be used."""


class ModelMessageBegan(Struct, frozen=True, kw_only=True, tag_field="event", tag="message_began"):
    iteration: int


class TextWritten(Struct, frozen=True, kw_only=True, tag_field="event", tag="text"):
    text: str


class ReasoningWritten(Struct, frozen=True, kw_only=True, tag_field="event", tag="reasoning"):
    text: str


class CallOpening(Struct, frozen=True, kw_only=True, tag_field="event", tag="call_opened"):
    """The model has started to write a call."""

    tool: str
    id: str


class CallArrived(Struct, frozen=True, kw_only=True, tag_field="event", tag="call_received"):
    """The engine has received the call. `arguments` is the text that the model wrote."""

    call: str
    id: str
    tool: str
    arguments: str


class CallRunning(Struct, frozen=True, kw_only=True, tag_field="event", tag="call_started"):
    call: str
    tool: str
    attempt: int
    early: bool
    """Whether it started while the model was still streaming its message."""


class CallOutput(Struct, frozen=True, kw_only=True, tag_field="event", tag="call_progress"):
    call: str
    stream: str
    text: str


class CallRetried(Struct, frozen=True, kw_only=True, tag_field="event", tag="call_retried"):
    call: str
    attempt: int
    reason: str


class CallAnswered(Struct, frozen=True, kw_only=True, tag_field="event", tag="call_ended"):
    call: str
    tool: str
    status: str
    """`ok`, `error`, `unknown`, `aborted`, or `asked`: it waits for a human."""
    ms: float = 0.0
    early: bool = False
    attempts: int = 0
    failure_class: str | None = None
    code: str | None = None
    reason: str | None = None
    text: str = ""
    """The text that the model gets."""
    command_end: str = ""
    """How the command of an `ok` call ended, such as `exit code 3`; empty for exit code 0."""
    changed: str = ""
    """Which arguments a human, a policy or a hook has changed, and why."""


class PassEnded(Struct, frozen=True, kw_only=True, tag_field="event", tag="message_ended"):
    iteration: int
    status: str
    reason: str


class Noticed(Struct, frozen=True, kw_only=True, tag_field="event", tag="notice"):
    kind: str
    text: str


class ApprovalAsked(Struct, frozen=True, kw_only=True, tag_field="event", tag="question"):
    call: str
    tool: str
    approval: str
    question: str
    arguments: dict[str, object]
    """The final arguments: those that the tool gets if the call is allowed."""


class ApprovalAnswered(Struct, frozen=True, kw_only=True, tag_field="event", tag="question_answered"):
    approval: str
    allowed: bool
    by: str
    elsewhere: bool = False
    """Whether another process answered it."""


class RunInterrupted(Struct, frozen=True, kw_only=True, tag_field="event", tag="interrupted"):
    how: str
    """`stop` or `kill`."""


class RunFinished(Struct, frozen=True, kw_only=True, tag_field="event", tag="run_ended"):
    status: str
    turn_status: str
    reason: str
    text: str
    iterations: int
    calls: int
    failed: int
    """The number of calls of the whole run that ended without success, without `refused` ones."""
    refused: int
    """The number of calls that the loop refused. They are not included in `calls`."""
    input_tokens: int
    output_tokens: int
    seconds: float
    run: str
    record: str


CommandEvent = (
    RunBegan
    | ModelMessageBegan
    | TextWritten
    | ReasoningWritten
    | CallOpening
    | CallArrived
    | CallRunning
    | CallOutput
    | CallRetried
    | CallAnswered
    | PassEnded
    | Noticed
    | ApprovalAsked
    | ApprovalAnswered
    | RunInterrupted
    | RunFinished
)


class RunEventStream:
    """Merges one run's events from the agent and the bus.

    Args:
        bus: The engine's bus; subscribed to until `close`.
        tell: Called with each event; must not raise.
    """

    def __init__(self, bus: Bus, tell: Callable[[CommandEvent], None]) -> None:
        self._tell = tell
        self._tools: dict[str, str] = {}
        self._early: set[str] = set()
        self._started: dict[str, tuple[float, int]] = {}
        """By running call: the start of its first attempt, in monotonic seconds, and the number of its attempts."""
        self._streaming = False
        self.kept = False
        """Whether a call has changed files that can be restored."""
        self.close = bus.subscribe(
            self._handle_event,
            *("call.received", "call.started", "call.progress", "call.attempt_failed", "call.suspended", "call.aborted", "tool.completed"),
            *("files.kept", "files.not_kept"),
        )

    def agent(self, event: AgentEvent) -> None:
        """Pass on an event of the agent."""
        match event:
            case TextDelta(text=text):
                self._tell(TextWritten(text=text))
            case ReasoningDelta(text=text):
                self._tell(ReasoningWritten(text=text))
            case CallOpened(id=id, name=name):
                self._tell(CallOpening(tool=name, id=id))
            case MessageBegan(iteration=iteration):
                self._streaming = True
                self._tell(ModelMessageBegan(iteration=iteration))
            case Finished():
                self._streaming = False
            case MessageEnded(iteration=iteration, status=status, reason=reason):
                self._streaming = False
                self._tell(PassEnded(iteration=iteration, status=status, reason=reason))
            case Notice(kind=kind, text=text, hidden=False):
                self._tell(Noticed(kind=kind, text=text))

    def _handle_event(self, topic: str, item: object) -> None:
        if isinstance(item, Progress):
            self._tell(CallOutput(call=item.call, stream=item.stream, text=item.text))
        elif isinstance(item, ToolResult):
            self._tell(self._call_answered(item))
        elif isinstance(item, Event):
            event = self._convert(topic, item, body_of(item))
            if event is not None:
                self._tell(event)

    def _convert(self, topic: str, event: Event, body: dict[str, Any]) -> CommandEvent | None:
        call = event.call
        match topic:
            case "call.received":
                self._tools[call] = str(body.get("name", ""))
                return CallArrived(call=call, id=str(body.get("id", "")), tool=self._tools[call], arguments=str(body.get("arguments", "")))
            case "call.started":
                self._tools[call] = str(body.get("tool", ""))
                self._started[call] = (self._started[call][0] if call in self._started else event.mono, event.attempt)
                if self._streaming:
                    self._early.add(call)
                return CallRunning(call=call, tool=self._tools[call], attempt=event.attempt, early=self._streaming)
            case "call.attempt_failed":
                return CallRetried(call=call, attempt=event.attempt, reason=str(body.get("error", "")))
            case "files.kept":
                self.kept = self.kept or _number(body.get("details"), "count") > 0
            case "files.not_kept":
                return Noticed(kind="files_not_kept", text=f"{body.get('reason', '')}. callgate undo cannot take it back.")
            case "call.suspended" | "call.aborted":
                return self._without_result(topic, event, str(body.get("reason", "")))
        return None

    def _without_result(self, topic: str, event: Event, reason: str) -> CallAnswered:
        """Return the event for a call that ended without a result: it waits for a human, or it was aborted."""
        since, attempts = self._started.pop(event.call, (event.mono, 0))
        early = event.call in self._early
        self._early.discard(event.call)
        return CallAnswered(
            call=event.call,
            tool=self._tools.pop(event.call, ""),
            status="asked" if topic == "call.suspended" else "aborted",
            ms=round((event.mono - since) * 1000, 1),
            early=early,
            attempts=attempts,
            reason=reason,
        )

    def _call_answered(self, result: ToolResult) -> CallAnswered:
        self._tools.pop(result.uid, None)
        self._started.pop(result.uid, None)
        early = result.uid in self._early
        self._early.discard(result.uid)
        return CallAnswered(
            call=result.uid,
            tool=result.name,
            status=result.status,
            ms=round(result.metadata.duration_ms, 1),
            early=early,
            attempts=result.metadata.attempts,
            failure_class=result.failure_class,
            code=result.code,
            reason=result.error,
            text=result.text,
            command_end=result.metadata.command_end,
            changed=" ".join(note.text for note in result.metadata.notes if note.kind == "modified"),
        )


def _number(details: object, key: str) -> int:
    found = details.get(key) if isinstance(details, dict) else None
    return found if isinstance(found, int) else 0
