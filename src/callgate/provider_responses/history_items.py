"""Write a message and the results of its calls as the items that the next request of its provider needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from callgate.calls import ToolResult
from callgate.messages import AssistantMessage, Message, Native, ToolCall, ToolMessage, UserMessage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames
from callgate.provider_responses.plain_values import with_bytes
from callgate.provider_responses.response_reader import ProviderResponse

__all__ = ["HistoryItems", "history_items"]

_Item = dict[str, object]
_QUESTION = UserMessage("?")
"""Stands for the conversation before the message, so that no encoder adds a beginning; its item is dropped."""
_RESULT_ROLES = frozenset({"tool", "user"})
_RESULT_TYPES = frozenset({"function_call_output", "custom_tool_call_output", "function_result"})


class HistoryItems(Struct, frozen=True, kw_only=True):
    """The items of one message: entries of `messages`, `contents` or `input`."""

    messages: list[_Item]
    """The model's message, then the results."""
    results: list[_Item]
    """The results alone; for APIs that hold results in a turn of the user, this turn."""


def history_items(response: ProviderResponse, results: Sequence[ToolResult | None]) -> HistoryItems:
    """Return what to append to the conversation after a response.

    Args:
        response: The response, as `read_response` returned it.
        results: For each call of the message, its result; None leaves the call, and all calls that the host answers itself, out of the
            message.
    """
    message, answers = _answered(response, results)
    if not message.parts:
        return HistoryItems(messages=[], results=[])
    wire, api = codec(response.provider.api), response.provider
    conversation: list[Message] = [_QUESTION, message, *answers]
    request = ModelRequest(model=response.model, messages=conversation)
    items = wire.encode_history(request, response.names or WireNames(), {**api.quirks, "citations": True})[1:]
    if response.takes_bytes:
        items = cast("list[_Item]", with_bytes(items))
    first = next((place for place, item in enumerate(items) if _is_result(item)), len(items))
    return HistoryItems(messages=items, results=items[first:])


def _answered(response: ProviderResponse, results: Sequence[ToolResult | None]) -> tuple[AssistantMessage, list[ToolMessage]]:
    """Return the message and the results. If a call has no result, the message has only those calls that have one."""
    message = response.message
    answers = [_tool_message(call, result) for call, result in zip(message.calls, results, strict=True) if result is not None]
    if None not in results:
        return message, answers
    left = iter(results)
    parts = [part for part in message.parts if not isinstance(part, ToolCall) or next(left) is not None]
    kept = tuple([part for part in parts if not (isinstance(part, Native) and part.item in response.host_calls)])
    return replace(message, parts=kept), answers


def _tool_message(call: ToolCall, result: ToolResult) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=result.content, is_error=result.status != "ok", custom=call.custom, made_id=call.made_id
    )


def _is_result(item: _Item) -> bool:
    return item.get("role") in _RESULT_ROLES or item.get("type") in _RESULT_TYPES
