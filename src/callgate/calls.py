"""The values of callgate's interface: a call, its scope, and its outcome.

Frozen, keyword-only, made of plain data. Knows nothing of tools, policies or runners.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from callgate._option_checks import NamedStruct
from callgate._provider_calls import argument_value, is_plain_call, keys_beside, provider_call, text_value
from callgate.content_parts import Audio, Image, Link, Part, Resource, Text, part_text
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
    """What proves that the arguments are complete: their own end (`sealed`), or the end of the message (`finished`). A
    call with `cut`, for which nothing proves it, never runs.
    """
    idempotency_key: str | None = None
    """The caller's idempotency key for this call; scoped to principal and tool."""
    reasoning: str = ""
    """The model's reason for the call, if it gave one. Recorded, never interpreted."""
    beside: Mapping[str, object] | None = None
    """Keys that the model wrote beside `arguments` instead of inside. They are used as the arguments if `arguments` is
    empty.
    """
    lifted: bool = False
    """Whether the arguments already include keys that the model wrote beside them. The result gets the same note as if
    `beside` had been used.
    """

    @classmethod
    def from_provider(cls, item: object, *, finish_reason: str | None = "tool_calls") -> RawCall:
        """Read one call from a model's message, as a provider's SDK returns it: an object or a dict.

        Supports the calls of OpenAI (chat and responses), Anthropic, Gemini, Bedrock, Mistral, Cohere and Ollama, and
        of compatible servers. An invalid item, which a model or a server may have spoilt, becomes a call without a name,
        which ends its message.

        Args:
            item: An item of `tool_calls`, a `function_call` item or part, a `tool_use` block, or a `toolUse` block.
            finish_reason: Why the message ended, as the provider says it: OpenAI's `finish_reason`, Anthropic's
                `stop_reason`, and so on. A value that does not mean a complete message, such as `length`, marks the
                call as cut.

        Raises:
            UsageError: `item` is not one call, but for example None, text, a whole response or a list of calls.
        """
        return cls._from_item(item, "RawCall.from_provider", finish_reason)

    @classmethod
    def from_openai(cls, item: object, *, finish_reason: str | None = "tool_calls") -> RawCall:
        """Do the same as `from_provider`. The name suits an item of `tool_calls` in an OpenAI chat message.

        Args:
            item: The SDK's object, or `{"id", "type": "function", "function": {"name", "arguments"}}`. Either object
                may have a `reasoning`, which is kept.
            finish_reason: The finish reason of the choice. Anything but `stop`, `tool_calls` or `function_call` means
                that the message was cut.
        """
        return cls._from_item(item, "RawCall.from_openai", finish_reason)

    @classmethod
    def _from_item(cls, item: object, reader: str, finish_reason: str | None) -> RawCall:
        _refuse_read_call(item, reader)
        fields = provider_call(item, reader, finish_reason)
        return cls(name="", arguments=argument_value(item), origin="openai.chat") if fields is None else cls(**fields)

    @classmethod
    def from_dict(cls, item: object) -> RawCall:
        """Read a call from a dict in callgate's format or in a provider's.

        callgate's format has the keys `tool` or `name`, `parameters` or `arguments`, and `reasoning`. If the parameters
        are missing or empty, the keys beside `tool` are used as parameters when the call is parsed. JSON data that is
        not a call becomes a call without a name, which ends its message.

        Raises:
            UsageError: `item` is not one call, but for example a whole response or a list of calls.
        """
        _refuse_read_call(item, "RawCall.from_dict")
        if not is_plain_call(item):
            fields = provider_call(item, "RawCall.from_dict", "tool_calls", any_json=True)
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
    """The provider's id of the message that has the calls, such as `chatcmpl-...`. With it, calls of two messages are
    never taken for the same call, and a message that is submitted again is recognised, even if iterations are not
    counted. An agent counts iterations and ignores it.
    """
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
    """Deliberate mode's allowlist: without `deliberate=True` it blocks nothing. None allows all tools; an empty one blocks every tool."""
    surface_errors: bool = True
    """Whether the host shows notices and errors to its user."""
    extra: object = None
    """The host's own context, passed to tools as the same object."""
    streaming: object = None
    """The `StreamingContext` of the turn's model, passed to tools as the same object; set by an agent. Never recorded."""


class Note(NamedStruct, frozen=True, kw_only=True, gc=False):
    """A change that the engine made to a call or result, so that nothing changes silently."""

    kind: Literal["json_repaired", "lifted", "name", "coerced", "dropped", "modified", "normalised", "warning", "empty", "replayed"]
    text: str
    """One sentence for people and models."""
    path: str = ""
    """The place in the arguments, as a JSON pointer. If empty, the whole call."""


class Metadata(NamedStruct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Facts about a result that are not its content."""

    bytes: int = 0
    """Size of the whole content, before anything was left out: in UTF-8, or as the tool reports, such as the size of a file."""
    truncated: bool = False
    """Whether the model sees only a part of the content. Then `blob` names the whole content, or the content says how
    to read the rest.
    """
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
    """The cache scope of the cached result that was used; None if none was used."""
    replayed: bool = False
    """Whether this is the stored result of an earlier identical call."""
    joined: bool = False
    """Whether this is the result of an identical call that was already running."""
    notes: tuple[Note, ...] = ()
    recorded: bool = True
    """False if this end of the call could not be recorded."""
    record_failure: str = ""
    """Why the call or its end could not be recorded, and what the operator has to do. Not shown to the model."""
    command_end: str = ""
    """How the command of an `ok` call ended, if not with exit code 0: `exit code 3`, `killed by SIGKILL`, `timed out after 2 s`."""
    untrusted: bool = True
    """Whether the content comes from outside, so that rules can restrict its use."""
    server_fields: dict[str, object] | None = None
    """The fields that an MCP server sent with the result and that no other attribute has: `_meta`, and those that MCP does not define.
    `structuredContent` is there as None if it is not an object: its value is `structured`. `content` has the same for each item of the
    server's content, or None; an item of an unknown type is there as a whole, and so are those of a failure whose text is not all in
    `error`. If the server has sent no `content`, it is None. `error` is the error with which the server has answered instead. Not shown to
    the model. At most as large as the content may be.
    """

    @property
    def retry_count(self) -> int:
        return max(0, self.attempts - 1)


class ToolResult(NamedStruct, frozen=True, kw_only=True):
    """The result of a call: the same type for every tool and every failure."""

    id: str
    """The model's call id, or one that the engine made if there was none."""
    uid: str
    """The engine's unique id of the call: run/iteration/index."""
    name: str
    status: Literal["ok", "error", "unknown"]
    content: tuple[Part, ...] = ()
    """The content for the model, within the output limit. If the call did not succeed, it says what to do next."""
    structured: object = None
    """The checked value as JSON data; None if it is large (`metadata.blob`)."""
    error: str | None = None
    """Why the call did not succeed."""
    failure_class: str | None = None
    """One of `callgate.errors.FAILURE_CLASSES`; None on success."""
    code: str | None = None
    """The exact reason; stable across versions."""
    message: str | None = None
    """The message that the tool returned in addition to its data."""
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
        """The tool's output: the `data` of a result that has this key, otherwise the whole value."""
        value = self.structured
        return value["data"] if isinstance(value, dict) and "data" in value and "success" in value else value

    @property
    def text(self) -> str:
        """The content's text parts as one string, for a provider's tool message."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class CurrentToolCall(ToolResult, frozen=True, kw_only=True):
    """A conversation's latest successful call: its result and parameters."""

    parameters: dict[str, object] = field(default_factory=dict)
    """The arguments that the tool ran with, as recorded."""
    reasoning: str = ""
    """The model's reason for the call, if it gave one."""


class Answered(NamedStruct, frozen=True):
    """The call has a result. Add it to the history at the call's place."""

    result: ToolResult

    def message(self) -> dict[str, Any]:
        """Return the result as a `tool` message of an OpenAI chat request, which holds only text: an image becomes
        `[image/png]`.

        The other outcomes have this method, too, so that it can be called without checking the type of the outcome.
        They raise if they have no result.

        Raises:
            UsageError: The call has no result; the error says what to do instead.
        """
        return {"role": "tool", "tool_call_id": self.result.id, "content": "\n".join(map(part_text, self.result.content))}


class Restarted(NamedStruct, frozen=True):
    """The result enriched the context: add no history entry, and ask the model again."""

    uid: str
    recorded: bool = True
    """False if this could not be recorded."""

    def message(self) -> dict[str, Any]:
        raise UsageError("The call's result went into the context (Restarted): add no message, and ask the model again.")


class Aborted(NamedStruct, frozen=True):
    """The call ended its message, with this turn status. Add no history entry of it, unless it has a `kept_result`."""

    status: Literal["error", "stopped_by_user"]
    reason: str = ""
    recorded: bool = True
    """False if this could not be recorded; `reason` says why."""
    kept_result: ToolResult | None = None
    """The result of a call with an effect that had started when its message was stopped: what the tool returned, or that the call was ended
    and may have taken effect (`unknown`). Add it to the history, so that the model does not make the call again.
    """

    @property
    def in_doubt(self) -> bool:
        """Whether the call was ended and may have taken effect."""
        return self.kept_result is not None and self.kept_result.status == "unknown"

    def message(self) -> dict[str, Any]:
        if self.kept_result is not None:
            return Answered(self.kept_result).message()
        raise UsageError(f"The call ended its message (Aborted, {self.status}): {self.reason} Add no message of it, and end the turn.")


class Approval(NamedStruct, frozen=True, kw_only=True):
    """A question to a human about one call, and the answer. `inbox.waiting` has the tool, the arguments and the principal of the call."""

    approval_id: str
    """The uid of the call that was suspended for it."""
    run: str
    expires_at: int
    """When the question expires, in UTC nanoseconds."""
    allowed: bool | None = None
    """None until the question is answered."""
    by: str = ""
    """Who answered; empty until the question is answered."""
    reason: str = ""
    """The reason that was given with the answer."""
    arguments: Mapping[str, object] | None = None
    """The arguments with which the human allowed the call instead of its own; None for its own."""


class Suspended(NamedStruct, frozen=True):
    """The call needs the decision of a human. It has not run, and the engine does not wait."""

    approval_id: str
    expires_at: int
    """When the question expires, in UTC nanoseconds. After that, the call must be submitted again."""
    question: str = ""
    uid: str = ""
    tool: str = ""
    """The name of the tool. This and the fields below are empty where an outcome was read from a run's record."""
    arguments: str = ""
    """The final arguments as JSON, about which the human decides: with the changes of hooks and policies, and without secrets."""
    rule: str = ""
    """The rule that asks."""
    server: str = ""
    """The MCP server or the plugin that has the tool; empty for other tools."""

    def message(self) -> dict[str, Any]:
        raise UsageError(
            f"A human has to decide about the call (Suspended): {self.question} Answer with"
            f" engine.approve('{self.approval_id}') or engine.deny(...), and hand the same call in again."
        )


Outcome = Answered | Restarted | Aborted | Suspended
