"""How a result looks in a provider's history. Pure; the route knows nothing of this."""

from __future__ import annotations

from msgspec import Struct

from callgate.calls import RawCall, ToolResult

__all__ = ["HistoryEntry", "function_response", "history_entry", "openai_message"]


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One call and its result, as they stand together in a history of function calls."""

    function_call: dict[str, object]
    """`{"name", "args"}`."""
    function_response: dict[str, object]
    """`{"name", "response": {"result"}}`."""
    image_metadata: object = None
    success: bool = True
    end_turn: bool = False


def function_response(result: ToolResult) -> dict[str, object]:
    """The result as `{"name", "response": {"result": ...}}`: the data on success, an error object otherwise."""
    return {"name": result.name, "response": {"result": _payload(result)}}


def history_entry(raw: RawCall, result: ToolResult, arguments: object = None) -> HistoryEntry:
    """Pair a call with its result, in that order."""
    return HistoryEntry(
        function_call={"name": result.name, "args": raw.arguments if arguments is None else arguments},
        function_response=function_response(result),
        image_metadata=result.image_metadata,
        success=result.success,
        end_turn=result.end_turn,
    )


def openai_message(result: ToolResult) -> dict[str, object]:
    """The result as a `tool` message of an OpenAI chat request."""
    return {"role": "tool", "tool_call_id": result.id, "content": result.text}


def _payload(result: ToolResult) -> object:
    if result.success:
        if result.metadata.truncated:
            return result.text
        return {"status": "completed"} if result.data is None else result.data
    payload: dict[str, object] = {"status": result.status, "error": result.error, "code": result.code, "tool_name": result.name}
    if isinstance(result.structured, dict):
        payload.update(result.structured)
    return payload
