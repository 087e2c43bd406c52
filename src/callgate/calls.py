"""The values that cross callgate's border: a call in, an outcome out, and the scope both live in.

Frozen, keyword-only, made of plain data. Knows nothing of tools, policies or runners.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from callgate._json import json_text

__all__ = [
    "Aborted",
    "Answered",
    "Audio",
    "Category",
    "CurrentToolCall",
    "Effect",
    "Image",
    "Link",
    "Metadata",
    "Note",
    "Outcome",
    "Part",
    "RawCall",
    "Resource",
    "Restarted",
    "Scope",
    "Suspended",
    "Text",
    "ToolResult",
]

Effect = Literal["none", "idempotent", "once"]
"""What is safe to repeat: `none` reads, `idempotent` has one effect per key, `once` is everything else."""

Category = Literal["safe_chain", "terminal", "dangerous", "async_required"]
"""What a call means for the loop: chain on, end the turn, count against the tick, or take long."""


class RawCall(Struct, frozen=True, kw_only=True):
    """A call exactly as the model emitted it."""

    name: str
    arguments: str | bytes | Mapping[str, object] = ""
    """Untrusted; may be malformed. At most `Limits.arguments_bytes` of UTF-8."""
    id: str = ""
    """The model's own id: echoed, never trusted to be unique. Empty: the engine makes one."""
    origin: str = ""
    """Where the call comes from, for the record: a provider's API, `cli`, the host's own word."""
    closed: Literal["sealed", "finished", "cut"] = "sealed"
    """What proved the arguments complete: their own end (`sealed`), the message's (`finished`), or nothing (`cut`, never runs)."""
    idempotency_key: str | None = None
    """The caller's own key for "this very call"; scoped to principal and tool."""
    reasoning: str = ""
    """Why the model calls, if it said so. Recorded, never interpreted."""
    beside: Mapping[str, object] | None = None
    """Keys that the model wrote next to `arguments` instead of inside; taken for the arguments where those are empty."""
    lifted: bool = False
    """Whether whoever read the call has done that already: then it is noted and warned of in the same way."""

    @classmethod
    def from_openai(cls, item: object, *, finish_reason: str | None = "tool_calls") -> RawCall:
        """Read one item of an OpenAI chat message's `tool_calls`. What is no item at all is a call without a name, which ends its message.

        Args:
            item: `{"id", "type": "function", "function": {"name", "arguments"}}`; a `reasoning` in either is kept.
            finish_reason: The choice's. Anything but `stop`, `tool_calls` or `function_call` means the message was cut.
        """
        if not isinstance(item, Mapping):
            return cls(name="", arguments=_arguments(item), origin="openai.chat")
        function = item.get("function")
        fields: Mapping[str, object] = function if isinstance(function, Mapping) else {}
        closed: Literal["finished", "cut"] = "finished" if finish_reason in ("stop", "tool_calls", "function_call") else "cut"
        return cls(
            id=_text(item.get("id")),
            name=_text(fields.get("name")),
            arguments=_arguments(fields.get("arguments")),
            origin="openai.chat",
            closed=closed,
            reasoning=_text(fields.get("reasoning", item.get("reasoning"))),
            beside=_beside(fields),
        )

    @classmethod
    def from_dict(cls, item: object) -> RawCall:
        """Read a call written as `{"tool" | "name", "parameters" | "arguments", "reasoning"}`, or as `{"name", "args"}`, Gemini's form.

        Where the parameters are missing or empty, keys that stand beside `tool` are taken for them when the call is parsed.
        What is no mapping is a call without a name, which ends its message.
        """
        if not isinstance(item, Mapping):
            return cls(name="", arguments=_arguments(item), origin="dict")
        if _GEMINI_KEYS <= item.keys() <= _GEMINI_KEYS | {"id", "type"}:
            item = {**item, "arguments": item["args"]}
            del item["args"]
        name = item.get("tool", item.get("name"))
        return cls(
            id=_text(item.get("id")),
            name=_text(name),
            arguments=_arguments(item.get("parameters", item.get("arguments"))),
            origin="dict",
            reasoning=_text(item.get("reasoning")),
            beside=_beside(item),
        )


_GEMINI_KEYS = frozenset({"name", "args"})
_CALL_KEYS = frozenset({"id", "type", "tool", "name", "parameters", "arguments", "reasoning"})


def _beside(item: Mapping[str, object]) -> Mapping[str, object] | None:
    return {key: value for key, value in item.items() if key not in _CALL_KEYS} or None


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _arguments(value: object) -> str | bytes | Mapping[str, object]:
    if value is None:
        return ""
    if isinstance(value, (str, bytes, Mapping)):
        return value
    try:
        return json_text(value)
    except (TypeError, ValueError, RecursionError):  # no JSON data, so no model's words; parsing says so
        return str(value)


class Scope(Struct, frozen=True, kw_only=True):
    """Where and for whom calls run: one value per turn, the same for every call of it."""

    run: str = ""
    """The unit of order and recovery. Empty: the engine's own run, which lives as long as the engine."""
    conversation: str = ""
    turn: int = 0
    tick: str = ""
    """What the `dangerous` limit and the `tick` cache count by. Empty: one tick per turn."""
    iteration: int = 0
    """The emission's number within the turn, from 0."""
    phase: str = ""
    """The phase of the run that the calls belong to, for the record. An agent names each pass of the model `run/iteration`."""
    principal: str = ""
    """Who is asking; part of every cache key and idempotency key."""
    actor: str = ""
    """Whom a tool acts as, where it needs somebody. Empty: nobody."""
    workspace: str = ""
    """The root folder that file tools are confined to. Empty: none."""
    locale: str = ""
    provider: str = ""
    """The model provider's name."""
    deliberate: bool = False
    """Whether deliberate mode is on: only tools that this turn asks for are exposed."""
    allowed_tools: frozenset[str] | None = None
    """Deliberate mode's allowlist. None: no gate. Empty: every tool is blocked."""
    surface_errors: bool = True
    """Whether the host shows notices and errors to its user."""
    extra: object = None
    """The host's own live context, handed to tools untouched (the same object, never a copy)."""
    streaming: object = None
    """What the turn's model streams in, a `StreamingContext`, handed to tools as the same object; an agent fills it in. Never recorded."""


class Note(Struct, frozen=True, kw_only=True, gc=False):
    """One thing that was changed on the way, so that nothing changes silently."""

    kind: Literal["json_repaired", "lifted", "name", "coerced", "dropped", "modified", "normalised", "warning", "empty"]
    text: str
    """One sentence for people and models."""
    path: str = ""
    """Where in the arguments, as a JSON pointer. Empty: the call as a whole."""


class Text(Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="text"):
    text: str


class Image(Struct, frozen=True, kw_only=True, tag_field="type", tag="image", rename="camel"):
    data: str
    """Base64."""
    mime_type: str


class Audio(Struct, frozen=True, kw_only=True, tag_field="type", tag="audio", rename="camel"):
    data: str
    """Base64."""
    mime_type: str


class Link(Struct, frozen=True, kw_only=True, tag_field="type", tag="resource_link", rename="camel"):
    uri: str
    name: str = ""
    mime_type: str = ""


class Resource(Struct, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: dict[str, object]


Part = Text | Image | Audio | Link | Resource
"""One part of a result's content, in MCP's JSON shape."""


class Metadata(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Facts about a result that are not its content."""

    bytes: int = 0
    """Size of the whole content, before anything was left out: in UTF-8, or as the tool says, as of a file."""
    truncated: bool = False
    """Whether the model sees less than the whole; then `blob` names it, or the content says how to go on."""
    mime: str = "text/plain"
    content_key: str = ""
    """The key of `structured` whose text the content is; empty: the content is the whole value."""
    blob: str | None = None
    """SHA-256 of the whole content in the blob store; `read_result` and `search_result` take it."""
    duration_ms: float = 0.0
    attempts: int = 0
    """How often the tool was started for this call; 0 for refused, cached and replayed calls."""
    rule: str = ""
    """The rule that decided, as `id (file:line)`."""
    cached: str | None = None
    """The cache scope that answered, if one did."""
    replayed: bool = False
    """The stored result of this very call was given again."""
    joined: bool = False
    """The result of an identical call that was already running."""
    notes: tuple[Note, ...] = ()
    recorded: bool = True
    """False where the record does not have this end of the call, and the text says why: whoever reads it later does not find it."""
    command_end: str = ""
    """How the command of an `ok` call ended, if not with exit code 0: `exit code 3`, `killed by SIGKILL`, `timed out after 2 s`."""
    untrusted: bool = True
    """Tool output is data from outside: a rule may say where it must not flow."""

    @property
    def retry_count(self) -> int:
        return max(0, self.attempts - 1)


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a call came to, in one shape for every family of tools and every failure."""

    id: str
    """The model's call id, as it came; one that the engine made where there was none."""
    uid: str
    """Ours: run/iteration/index, unique."""
    name: str
    status: Literal["ok", "error", "unknown"]
    content: tuple[Part, ...] = ()
    """For the model, within the output budget; says what to do next where the call did not succeed."""
    structured: object = None
    """The checked value as JSON data; None where it is large (`metadata.blob`)."""
    error: str | None = None
    """Why, where the call did not succeed."""
    failure_class: str | None = None
    """One of `callgate.errors.FAILURE_CLASSES`; None on success."""
    code: str | None = None
    """The fine reason; stable."""
    message: str | None = None
    """What the tool itself said beside its data."""
    end_turn: bool = False
    image_metadata: object = None
    metadata: Metadata = Metadata()

    @property
    def success(self) -> bool:
        return self.status == "ok"

    @property
    def reason(self) -> str | None:
        return self.error

    @property
    def data(self) -> object:
        """The tool's own output: the `data` of a result that has one, else the whole value."""
        value = self.structured
        return value["data"] if isinstance(value, dict) and "data" in value and "success" in value else value

    @property
    def text(self) -> str:
        """The content's text parts as one string: what a provider's tool message takes."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class CurrentToolCall(ToolResult, frozen=True, kw_only=True):
    """A conversation's latest successful call: its result, and what was asked for."""

    parameters: dict[str, object] = {}
    """The arguments that the tool ran with, as the record has them."""
    reasoning: str = ""
    """Why the model called, if it said so."""


class Answered(Struct, frozen=True):
    """The call has a result; put it in its place in the history."""

    result: ToolResult


class Restarted(Struct, frozen=True):
    """The result enriched the context instead: no history entry, generate again."""

    uid: str
    recorded: bool = True
    """False where the record does not have this."""


class Aborted(Struct, frozen=True):
    """The message ends here with this turn status; no history entry."""

    status: Literal["error", "stopped_by_user"]
    reason: str = ""
    recorded: bool = True
    """False where the record does not have this; then `reason` says why."""


class Suspended(Struct, frozen=True):
    """A human has to decide. Nothing ran; nothing waits."""

    approval_id: str
    expires_at: int
    """UTC nanoseconds; after it the question must be asked again."""
    question: str = ""
    uid: str = ""


Outcome = Answered | Restarted | Aborted | Suspended
