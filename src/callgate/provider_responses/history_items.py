"""Write a message and the results of its calls as the items that the next request of its provider needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from callgate.calls import Text, ToolResult
from callgate.messages import AssistantMessage, Message, Native, Reasoning, ToolCall, ToolMessage, UserMessage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames
from callgate.provider_responses.plain_values import with_bytes
from callgate.provider_responses.response_reader import ProviderResponse

__all__ = ["HistoryItems", "history_items"]

_Item = dict[str, object]
_QUESTION = UserMessage("?")
"""A placeholder for the conversation before the message, so that no encoder adds a beginning; its item is dropped."""
_RESULT_ROLES = frozenset({"tool", "user"})
_RESULT_TYPES = frozenset({"function_call_output", "custom_tool_call_output", "function_result"})


class HistoryItems(Struct, frozen=True, kw_only=True):
    """The items of one message: entries of `messages`, `contents` or `input`."""

    messages: list[_Item]
    """The model's message, then the results."""
    results: list[_Item]
    """The results alone; for APIs that hold results in a turn of the user, this turn."""


def history_items(response: ProviderResponse, results: Sequence[ToolResult | None], *, goes_on: bool = True) -> HistoryItems:
    """Return what to append to the conversation after a response.

    Args:
        response: The response, as `read_response` returned it.
        results: For each call of the message, its result; None leaves the call, and all calls that the host answers itself, out of the
            message.
        goes_on: False leaves out the calls that the host answers itself and those that the provider has not yet run, because the next
            message is one of the user.
    """
    names = response.names or WireNames()
    message, answers = _pair_results(response, results, names)
    if None in results or not goes_on:
        parts = [part for part in message.parts if not (isinstance(part, Native) and part.item in response.host_calls)]
        message = replace(message, parts=tuple(parts))
    if not message.parts:
        return HistoryItems(messages=[], results=[])
    wire, api = codec(response.provider.api), response.provider
    conversation: list[Message] = [_QUESTION, message, *answers]
    request = ModelRequest(model=response.model, messages=conversation)
    turn_ended = not (goes_on and (answers or response.finish == "pause"))
    quirks = {**api.quirks, "as_received": True, "own_ids": True, "turn_ended": turn_ended}
    items = wire.encode_history(request, names, quirks)[1:]
    if response.takes_bytes:
        items = cast("list[_Item]", with_bytes(items))
    first = next((place for place, item in enumerate(items) if _is_result(item)), len(items))
    return HistoryItems(messages=items, results=items[first:])


def _pair_results(
    response: ProviderResponse, results: Sequence[ToolResult | None], names: WireNames
) -> tuple[AssistantMessage, list[ToolMessage]]:
    """Return the message and the results. If a call has no result, the message has only those calls that have one."""
    left, answers = iter(results), list[ToolMessage]()
    parts: list[Text | Reasoning | ToolCall | Native] = []
    for part in response.message.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
        elif (result := next(left)) is not None:
            call = _with_accepted_name(part, result, names)
            parts.append(call)
            answers.append(_tool_message(call, result))
    return replace(response.message, parts=tuple(parts)), answers


def _with_accepted_name(call: ToolCall, result: ToolResult, names: WireNames) -> ToolCall:
    """Return the call with the name of its tool if the model wrote another one that the provider would refuse, such as `functions.pay`.

    The model reads its own calls: a changed form of what it wrote would teach it a name that no tool has.
    """
    return call if names.accepts(call.name) or not result.name else replace(call, name=result.name)


def _tool_message(call: ToolCall, result: ToolResult) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=result.content, is_error=result.status != "ok", custom=call.custom, made_id=call.made_id
    )


def _is_result(item: _Item) -> bool:
    return item.get("role") in _RESULT_ROLES or item.get("type") in _RESULT_TYPES
