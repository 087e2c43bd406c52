"""Provider-neutral messages of a conversation, and functions that format results for a host's own history.

Pure data. The route does not know this module, and this module knows no provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from callgate._json import decode, json_text
from callgate.calls import Answered, RawCall, ToolResult
from callgate.content_parts import Part, Text, part_text

__all__ = [
    "AssistantMessage",
    "HistoryEntry",
    "Message",
    "Native",
    "Reasoning",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
    "call_text",
    "fallback_call",
    "fallback_result",
    "function_response",
    "history_entry",
    "marked_result",
    "openai_message",
]


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One call and its result, as a pair for a history of function calls."""

    function_call: dict[str, object]
    """`{"name", "args"}`."""
    function_response: dict[str, object]
    """`{"name", "response": {"result"}}`."""
    image_metadata: object = None
    success: bool = True
    end_turn: bool = False


class Reasoning(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """A model's reasoning. Sent back only to the API it came from, as that API requires."""

    text: str = ""
    opaque: Mapping[str, object] | None = None
    """The provider's own item with signatures and encrypted content, sent back unchanged."""


class ToolCall(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """A call in a message, exactly as the model wrote it."""

    id: str
    """Unique within its message; generated if the provider gives none."""
    name: str
    arguments: str = ""
    """JSON text as received; for a custom call, the free text."""
    custom: bool = False
    """Whether the tool takes free text instead of JSON."""
    made_id: bool = False
    """Whether the id was generated. A generated id is not sent to APIs without ids."""
    opaque: Mapping[str, object] | None = None
    """Data that the provider expects to be sent back with the call, such as a signature or an item id."""
    reasoning: str | UnsetType = UNSET
    """The reason for the call, if the call contains one, as calls in text may."""
    lifted: bool | UnsetType = UNSET
    """Whether the arguments were beside an empty parameter object in the text."""


class Native(Struct, frozen=True, kw_only=True, tag_field="type", tag="native"):
    """An action of the provider itself, such as a web search. Recorded and sent back, never executed."""

    kind: str
    """The provider's name for it."""
    id: str = ""
    item: Mapping[str, object]


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    text: str


class UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    content: str | tuple[Part, ...]


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """One answer of a model, with its parts in order."""

    parts: tuple[Text | Reasoning | ToolCall | Native, ...] = ()
    api: str = ""
    """The provider API it came from; opaque parts are sent back only to this API."""

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


class ToolMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """The result of one call, as an entry of the history."""

    call_id: str
    name: str
    content: tuple[Part, ...] = ()
    is_error: bool = False
    custom: bool = False
    """Whether the call was a custom one."""
    made_id: bool = False

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""One provider-neutral entry of a conversation; `callgate.models.wire` writes each provider's format."""


def function_response(result: ToolResult) -> dict[str, object]:
    """Return the result as `{"name", "response": {"result": ...}}`: the data on success, an error object otherwise."""
    return {"name": result.name, "response": {"result": _result_payload(result)}}


def history_entry(raw: RawCall, result: ToolResult, arguments: object = None) -> HistoryEntry:
    """Return a call with its result, in that order."""
    return HistoryEntry(
        function_call={"name": result.name, "args": _arguments_of(raw) if arguments is None else arguments},
        function_response=function_response(result),
        image_metadata=result.image_metadata,
        success=result.success,
        end_turn=result.end_turn,
    )


def openai_message(result: ToolResult) -> dict[str, object]:
    """Return the result as a `tool` message of an OpenAI chat request."""
    return Answered(result).message()


def fallback_call(raw: RawCall, reasoning: str = "") -> dict[str, object]:
    """Return the call as an assistant message for a model without structured calls: JSON text of `tool`, `parameters` and `reasoning`.

    Args:
        reasoning: The reason for the call; if empty, the call's own.
    """
    parameters = _parameters(replace(raw, arguments=_arguments_of(raw)))
    return {"role": "assistant", "content": call_text(raw.name, parameters or {}, reasoning or raw.reasoning)}


def fallback_result(result: ToolResult) -> dict[str, object]:
    """Return the result as a user message for a model without structured calls: a line with the tool's name, then the value as JSON.

    Notes beside the value, such as how to read the rest of a large result, follow on lines of their own. An image becomes `[image/png]`.
    """
    return {"role": "user", "content": marked_result(result.name, list(map(part_text, result.content)))}


def call_text(name: str, parameters: object, reasoning: str) -> str:
    """Return a call as the JSON object that models without structured calls are taught to write."""
    return json_text({"tool": name, "parameters": parameters, "reasoning": reasoning})


def marked_result(name: str, texts: Sequence[str]) -> str:
    """Return a result after a line with the tool's name: its first text as JSON, the others unchanged."""
    value, *beside = texts or [""]
    return "\n".join((f"[TOOL RESULT: {name}]", _as_json(value), *beside))


def _as_json(text: str) -> str:
    """Return `text` if it is JSON, else `text` as a JSON string."""
    try:
        decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return json_text(text)
    return text


def _arguments_of(raw: RawCall) -> object:
    """Return the arguments as received; if they are empty, the keys beside them."""
    return dict(raw.beside) if raw.beside and not _parameters(raw) else raw.arguments


def _parameters(raw: RawCall) -> object:
    """Return the arguments as an object, or as text if they are not JSON."""
    if isinstance(raw.arguments, Mapping):
        return dict(raw.arguments)
    try:
        return decode(raw.arguments)
    except ValueError:
        return raw.arguments if isinstance(raw.arguments, str) else raw.arguments.decode("utf-8", "replace")


def _result_payload(result: ToolResult) -> object:
    if result.success:
        if result.metadata.truncated or result.metadata.content_key:
            return result.text
        return {"status": "completed"} if result.data is None else result.data
    payload: dict[str, object] = {"status": result.status, "error": result.error, "code": result.code, "tool_name": result.name}
    if isinstance(result.structured, dict):
        payload.update(result.structured)
    return payload
