"""The values of callgate's interface: a call, its scope, and its outcome.

Frozen, keyword-only, made of plain data. Knows nothing of tools, policies or runners.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from callgate._option_checks import NamedStruct
from callgate._provider_calls import argument_value, is_plain_call, keys_beside, provider_call, text_value
from callgate.errors import UsageError

__all__ = [
    "Aborted",
    "Answered",
    "Approval",
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
"""What is safe to repeat: `none` only reads, `idempotent` has one effect per key, `once` must not be repeated."""

Category = Literal["safe_chain", "terminal", "dangerous", "async_required"]
"""What a call means for the loop: continue, end the turn, count against the tick's limit, or take long."""


class RawCall(NamedStruct, frozen=True, kw_only=True):
    """A call exactly as the model made it."""

    name: str
    arguments: str | bytes | Mapping[str, object] = ""
    """Untrusted; may be malformed. At most `Limits.arguments_bytes` of UTF-8."""
    id: str = ""
    """The model's id of the call: returned with the result, not assumed to be unique. If empty, the engine makes one."""
    origin: str = ""
    """Where the call comes from, for the journal: a provider's API, `cli`, or the host's own name."""
    closed: Literal["sealed", "finished", "cut"] = "sealed"
    """What proves the arguments complete: their own end (`sealed`), the message's end (`finished`), or nothing (`cut`; never runs)."""
    idempotency_key: str | None = None
    """The caller's idempotency key for this call; scoped to principal and tool."""
    reasoning: str = ""
    """The model's reason for the call, if it gave one. Recorded, never interpreted."""
    beside: Mapping[str, object] | None = None
    """Keys that the model wrote beside `arguments` instead of inside; used as the arguments if those are empty."""
    lifted: bool = False
    """Whether the reader of the call has already used keys from beside the arguments. The result has the same note then."""

    @classmethod
    def from_provider(cls, item: object, *, finish_reason: str | None = "tool_calls") -> RawCall:
        """Read one call of a model's message, as a provider's SDK gives it: its object, or a dict of the same form.

        Read are the calls of OpenAI (chat and responses), Anthropic, Gemini, Bedrock, Mistral, Cohere, Ollama, and of compatible servers.
        An invalid item, as a model may write it, becomes a call without a name, which ends its message.

        Args:
            item: An item of `tool_calls`, a `function_call` item or part, a `tool_use` block, or a `toolUse` block.
            finish_reason: Why the message ended, in the provider's word: OpenAI's `finish_reason`, Anthropic's `stop_reason`, and so on. A
                word that does not mean a complete message, such as `length`, marks the call as cut.

        Raises:
            UsageError: It is something else than one call, such as a whole response or a list of calls.
        """
        return cls._from_item(item, "RawCall.from_provider", finish_reason)

    @classmethod
    def from_openai(cls, item: object, *, finish_reason: str | None = "tool_calls") -> RawCall:
        """Do the same as `from_provider`, under the name that fits an item of an OpenAI chat message's `tool_calls`.

        Args:
            item: The SDK's object, or `{"id", "type": "function", "function": {"name", "arguments"}}`; a `reasoning` in either is kept.
            finish_reason: The finish reason of the choice. Anything but `stop`, `tool_calls` or `function_call` means the message was cut.
        """
        return cls._from_item(item, "RawCall.from_openai", finish_reason)

    @classmethod
    def _from_item(cls, item: object, reader: str, finish_reason: str | None) -> RawCall:
        _refuse_read_call(item, reader)
        fields = provider_call(item, reader, finish_reason)
        return cls(name="", arguments=argument_value(item), origin="openai.chat") if fields is None else cls(**fields)

    @classmethod
    def from_dict(cls, item: object) -> RawCall:
        """Read a call written as `{"tool" | "name", "parameters" | "arguments", "reasoning"}`, or in a provider's format.

        If the parameters are missing or empty, keys beside `tool` are used as parameters when the call is parsed.
        JSON data that is not a call becomes a call without a name, which ends its message.

        Raises:
            UsageError: It is something else than one call, such as a whole response or a list of calls.
        """
        _refuse_read_call(item, "RawCall.from_dict")
        if not is_plain_call(item):
            fields = provider_call(item, "RawCall.from_dict", "tool_calls")
            if fields is not None:
                return cls(**fields)
        if not isinstance(item, Mapping):
            return cls(name="", arguments=argument_value(item), origin="dict")
        return cls(
            id=text_value(item.get("id")),
            name=text_value(item.get("tool", item.get("name"))),
            arguments=argument_value(item.get("parameters", item.get("arguments"))),
            origin="dict",
            reasoning=text_value(item.get("reasoning")),
            beside=keys_beside(item),
        )


def _refuse_read_call(item: object, reader: str) -> None:
    if isinstance(item, RawCall):
        raise UsageError(f"{reader} was given a RawCall. It is read already: hand it to `engine.call` as it is.")


class Scope(NamedStruct, frozen=True, kw_only=True):
    """Where and for whom calls run. All calls of a turn have the same scope."""

    run: str = ""
    """The run: the unit of order and recovery. If empty, the engine's own run."""
    conversation: str = ""
    turn: int = 0
    tick: str = ""
    """The unit of the `dangerous` limit and the `tick` cache. If empty, one tick per turn."""
    iteration: int = 0
    """The number of the message within the turn, from 0."""
    message_id: str = ""
    """The provider's id of the message that has the calls, such as `chatcmpl-...`. With it, calls of two messages are never the same call,
    and a message that is handed in again is recognised, also if iterations are not counted. An agent counts them and ignores it."""
    phase: str = ""
    """The phase of the run, for the journal. An agent names each pass of the model `run/iteration`."""
    principal: str = ""
    """On whose behalf the call is made; part of every cache key and idempotency key."""
    actor: str = ""
    """The identity that tools act as, for tools that need one."""
    workspace: str = ""
    """The root folder that file tools are confined to. If empty, there is none."""
    locale: str = ""
    provider: str = ""
    """The model provider's name."""
    deliberate: bool = False
    """Whether deliberate mode is on: only tools that match the turn's message are exposed."""
    allowed_tools: frozenset[str] | None = None
    """Deliberate mode's allowlist. None allows all tools; an empty one blocks every tool."""
    surface_errors: bool = True
    """Whether the host shows notices and errors to its user."""
    extra: object = None
    """The host's own context, passed to tools as the same object."""
    streaming: object = None
    """The `StreamingContext` of the turn's model, passed to tools as the same object; set by an agent. Never recorded."""


class Note(Struct, frozen=True, kw_only=True, gc=False):
    """A change that the engine made to a call or result, so that nothing changes silently."""

    kind: Literal["json_repaired", "lifted", "name", "coerced", "dropped", "modified", "normalised", "warning", "empty"]
    text: str
    """One sentence for people and models."""
    path: str = ""
    """The place in the arguments, as a JSON pointer. If empty, the whole call."""


class Text(Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="text"):
    text: str


class Image(NamedStruct, frozen=True, kw_only=True, tag_field="type", tag="image", rename="camel"):
    data: str
    """Base64."""
    mime_type: str


class Audio(NamedStruct, frozen=True, kw_only=True, tag_field="type", tag="audio", rename="camel"):
    data: str
    """Base64."""
    mime_type: str


class Link(NamedStruct, frozen=True, kw_only=True, tag_field="type", tag="resource_link", rename="camel"):
    uri: str
    name: str = ""
    mime_type: str = ""


class Resource(NamedStruct, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: dict[str, object]


Part = Text | Image | Audio | Link | Resource
"""One part of a result's content, in MCP's JSON shape."""


class Metadata(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Facts about a result that are not its content."""

    bytes: int = 0
    """Size of the whole content, before anything was left out: in UTF-8, or as the tool reports, such as the size of a file."""
    truncated: bool = False
    """Whether the model sees only a part; `blob` then names the whole, or the content says how to read on."""
    mime: str = "text/plain"
    content_key: str = ""
    """The key of `structured` whose text is the content; if empty, the content is the whole value."""
    blob: str | None = None
    """SHA-256 of the whole content in the blob store; `read_result` and `search_result` take it."""
    duration_ms: float = 0.0
    attempts: int = 0
    """How often the tool was started; 0 for refused, cached and replayed calls."""
    rule: str = ""
    """The rule that decided, as `id (file:line)`."""
    cached: str | None = None
    """The cache scope that answered, if one did."""
    replayed: bool = False
    """Whether this is the stored result of an earlier identical call."""
    joined: bool = False
    """Whether this is the result of an identical call that was already running."""
    notes: tuple[Note, ...] = ()
    recorded: bool = True
    """False if this end of the call could not be recorded; the text says why."""
    command_end: str = ""
    """How the command of an `ok` call ended, if not with exit code 0: `exit code 3`, `killed by SIGKILL`, `timed out after 2 s`."""
    untrusted: bool = True
    """Whether the content comes from outside, so that rules can restrict its use."""

    @property
    def retry_count(self) -> int:
        return max(0, self.attempts - 1)


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a call: the same type for every tool and every failure."""

    id: str
    """The model's call id, or one that the engine made if there was none."""
    uid: str
    """The engine's unique id of the call: run/iteration/index."""
    name: str
    status: Literal["ok", "error", "unknown"]
    content: tuple[Part, ...] = ()
    """For the model, within the output limit; says what to do next if the call did not succeed."""
    structured: object = None
    """The checked value as JSON data; None if it is large (`metadata.blob`)."""
    error: str | None = None
    """Why the call did not succeed."""
    failure_class: str | None = None
    """One of `callgate.errors.FAILURE_CLASSES`; None on success."""
    code: str | None = None
    """The exact reason; stable across versions."""
    message: str | None = None
    """The tool's own message beside its data."""
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
        """The tool's output: the `data` of a result that has it, else the whole value."""
        value = self.structured
        return value["data"] if isinstance(value, dict) and "data" in value and "success" in value else value

    @property
    def text(self) -> str:
        """The content's text parts as one string, for a provider's tool message."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class CurrentToolCall(ToolResult, frozen=True, kw_only=True):
    """A conversation's latest successful call: its result and parameters."""

    parameters: dict[str, object] = {}
    """The arguments that the tool ran with, as recorded."""
    reasoning: str = ""
    """The model's reason for the call, if it gave one."""


class Answered(Struct, frozen=True):
    """The call has a result; add it to the history in the call's place."""

    result: ToolResult

    def message(self) -> dict[str, Any]:
        """Return the result as a `tool` message of an OpenAI chat request.

        The other outcomes have this method too, so that it can be called without a case distinction. They have no message.

        Raises:
            UsageError: The call has no result; the error says what to do instead.
        """
        return {"role": "tool", "tool_call_id": self.result.id, "content": self.result.text}


class Restarted(NamedStruct, frozen=True):
    """The result enriched the context: add no history entry, and ask the model again."""

    uid: str
    recorded: bool = True
    """False if this could not be recorded."""

    def message(self) -> dict[str, Any]:
        raise UsageError("The call's result went into the context (Restarted): add no message, and ask the model again.")


class Aborted(NamedStruct, frozen=True):
    """The message ends with this turn status; add no history entry."""

    status: Literal["error", "stopped_by_user"]
    reason: str = ""
    recorded: bool = True
    """False if this could not be recorded; `reason` says why."""

    def message(self) -> dict[str, Any]:
        raise UsageError(f"The call ended its message (Aborted, {self.status}): {self.reason} Add no message of it, and end the turn.")


class Approval(NamedStruct, frozen=True, kw_only=True):
    """What a human was asked about one call, and what they answered."""

    approval_id: str
    """The uid of the call that was suspended for it."""
    run: str
    expires_at: int
    """UTC nanoseconds."""
    allowed: bool | None = None
    """None while nobody has answered."""
    by: str = ""
    """Who has answered."""
    reason: str = ""
    """Why."""
    arguments: Mapping[str, object] | None = None
    """The arguments with which they allowed the call instead of its own; None: its own."""


class Suspended(NamedStruct, frozen=True):
    """A human has to decide. Nothing ran, and nothing waits."""

    approval_id: str
    expires_at: int
    """UTC nanoseconds. After it, the question must be asked again."""
    question: str = ""
    uid: str = ""

    def message(self) -> dict[str, Any]:
        raise UsageError(
            f"A human has to decide about the call (Suspended): {self.question} Answer with"
            f" engine.answer('{self.approval_id}', allow=...), and hand the same call in again."
        )


Outcome = Answered | Restarted | Aborted | Suspended
