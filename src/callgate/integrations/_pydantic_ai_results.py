"""Results of Pydantic AI's tools: as JSON data for the engine, and back for the model. Must not know of agents or toolsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn, tool_return_content_ta, tool_return_ta
from pydantic_core import PydanticSerializationError

from callgate._json import decode, json_text
from callgate.calls import Text, ToolResult
from callgate.integrations.framework_call import CallsEngine, FrameworkCall, whole_value

__all__ = ["encode", "output_of"]

_TOOL_RETURN = "tool-return"
_ALWAYS_TOLD = ("status", "error", "code")
"""The keys that the engine's result of each failed call has."""
_REFUSED = ("invalid_parameters", "malformed_arguments")
_tool_return: TypeAdapter[Any] = TypeAdapter(ToolReturn)


def output_of(engine: CallsEngine, call: FrameworkCall, result: ToolResult) -> Any:
    """Return a result as Pydantic AI's own: that of the tool if nothing has changed it, else one from the record.

    Raises:
        ModelRetry: The engine has refused the arguments, or the tool has asked the model to try again.
        ToolFailed: The call has failed in another way.
    """
    if call.failed_with is not None and result.status == "error":
        raise call.failed_with
    if result.status != "ok":
        raise (ModelRetry if result.failure_class in _REFUSED else ToolFailed)(_failure_text(result))
    shortened = result.metadata.truncated and not _has_files(call.native)
    has_notes = not result.metadata.truncated and len(result.content) > 1
    if call.unchanged(result) and not shortened and (not has_notes or isinstance(call.native, ToolReturn)):
        return _add_notes(call.native, result) if has_notes else call.native
    return _restore(whole_value(engine, result), result)


def encode(output: Any) -> object:
    """Return the result of a tool as JSON data. What has no JSON form is returned unchanged: the engine says what is wrong with it.

    Metadata, which are for the application only, are left out if they have no JSON form.
    """
    if isinstance(output, str):
        return output
    try:
        return tool_return_ta.dump_python(output, mode="json", by_alias=True)
    except PydanticSerializationError:
        has_metadata = isinstance(output, ToolReturn) and output.metadata is not None
        return encode(replace(output, metadata=None)) if has_metadata else output


def _restore(value: Any, result: ToolResult) -> Any:
    """Return Pydantic AI's own result from the record of a successful call.

    Args:
        value: The whole value of the result.
    """
    if isinstance(value, dict) and value.get("kind") == _TOOL_RETURN:
        return _add_notes(_tool_return.validate_python(value), result)
    if value is None and result.text != "null":
        return result.text  # the engine's own, where it does not know what the tool returned
    made = tool_return_content_ta.validate_python(value)
    if isinstance(made, str) or (result.metadata.truncated and not _has_files(made)):
        return result.text
    return _add_notes(made, result)


def _add_notes(made: Any, result: ToolResult) -> Any:
    """Return a result with the engine's notes on it, such as that a human has changed the arguments."""
    notes = [part.text for part in result.content[1:] if isinstance(part, Text)] if not result.metadata.truncated else []
    if not notes:
        return made
    if isinstance(made, ToolReturn):
        content = [] if made.content is None else [made.content] if isinstance(made.content, str) else made.content
        return replace(made, content=[*content, *notes])
    return [*(made if isinstance(made, list) and _has_files(made) else [made]), *notes]  # files within an item would be sent as text


def _failure_text(result: ToolResult) -> str:
    """Return what the model reads about a call that did not succeed. Pydantic AI wraps it in JSON, so it is not JSON itself."""
    parts = [part.text for part in result.content if isinstance(part, Text)]
    fields = _parse_object(parts[0]) if parts else {}
    if fields.get("error") is None:
        return result.text or result.error or "the call failed"
    more = {key: value for key, value in fields.items() if key not in _ALWAYS_TOLD}
    return "\n".join([str(fields["error"]), *([json_text(more)] if more else []), *parts[1:]])


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = decode(text.encode())
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _has_files(value: Any) -> bool:
    """Return whether a result contains images or other files, which are not shortened."""
    if isinstance(value, ToolReturn):
        return _has_files(value.return_value) or _has_files(value.content)
    if isinstance(value, Mapping):
        return any(map(_has_files, value.values()))
    return any(map(_has_files, value)) if isinstance(value, (list, tuple)) else hasattr(value, "media_type")
