"""The calls of one message: their places in it, and the order in which those start that `ToolNode.invoke` runs in threads.

The threads of a message reach the engine in any order, and it runs calls with effects in the order of their arrival. So each thread waits
for the calls before it in the message. Calls that only read do not wait for each other. With `ainvoke`, the calls arrive in order.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from callgate.integrations.cut_calls import cut_calls

__all__ = ["MESSAGES", "MessageOrder", "calls_of_input", "is_cut", "malformed_calls_of_input", "message_of", "place_of", "turn_of"]

MESSAGES = "messages"
"""The key of the messages in a graph's state, unless a node is given another one."""
_REASONS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "status")
"""The keys under which the chat models of LangChain keep why a message ended."""
_ALWAYS_WITH_REASON = frozenset(
    {"anthropic", "bedrock_converse", "deepseek", "fireworks", "google_genai", "groq", "mistralai", "openai", "openrouter", "xai"}
)
"""The providers whose packages keep the reason of each whole message, so that a message without one is of a stream that broke off."""
_REPEATED = re.compile(r"(.+?)\1+")
"""A word several times in a row: LangChain joins those of a stream that sends it with more than one chunk."""


class MessageOrder:
    """The order of the calls that one execution of a node runs.

    Args:
        calls: The calls, in the order of the message.
        reads: Whether calls of the named tool only read.
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]], reads: Callable[[str], bool]) -> None:
        self._reads = {call["id"]: reads(call["name"]) for call in calls}
        self._ended = {call_id: threading.Event() for call_id in self._reads}

    @contextmanager
    def turn(self, call_id: str | None) -> Iterator[None]:
        """Wait until the call may start; on exit, the call has ended. A call of another message does not wait."""
        if call_id not in self._reads:
            yield
            return
        for earlier, ended in self._ended.items():
            if earlier == call_id:
                break
            if not (self._reads[earlier] and self._reads[call_id]):
                ended.wait()
        try:
            yield
        finally:
            self._ended[call_id].set()


def calls_of_input(given: Any, messages_key: str) -> Sequence[Mapping[str, Any]]:
    """Return the calls that a `ToolNode` runs for its input; empty for a single call that was sent to it, or an unknown form."""
    messages = _messages_of_input(given, messages_key)
    if messages and isinstance(messages[-1], Mapping):
        return messages if messages[-1].get("type") == "tool_call" else ()
    return next((_calls_of(message) for message in reversed(messages) if isinstance(message, AIMessage)), ())


def malformed_calls_of_input(given: Any, messages_key: str) -> Sequence[Mapping[str, Any]]:
    """Return the calls of a `ToolNode`'s input whose arguments are not valid JSON; empty if its input is not a message."""
    messages = _messages_of_input(given, messages_key)
    if messages and isinstance(messages[-1], Mapping):
        return ()
    return next((_malformed_calls_of(message) for message in reversed(messages) if isinstance(message, AIMessage)), ())


def _messages_of_input(given: Any, messages_key: str) -> Sequence[Any]:
    messages = given
    if isinstance(given, Mapping):
        messages = [] if "__type" in given else given.get(messages_key)
    elif not isinstance(given, list):
        messages = getattr(given, messages_key, None)
    return messages if isinstance(messages, list) else ()


def _calls_of(message: Any) -> Sequence[Mapping[str, Any]]:
    """Return the calls of a message, then those with malformed arguments, whose `args` are the model's text."""
    return [*getattr(message, "tool_calls", ()), *_malformed_calls_of(message)]


def _malformed_calls_of(message: Any) -> Sequence[Mapping[str, Any]]:
    found = getattr(message, "invalid_tool_calls", ())
    return [
        {"name": one["name"], "args": one["args"] or "", "id": one["id"], "type": "tool_call"} for one in found if one["name"] and one["id"]
    ]


def place_of(request: ToolCallRequest, messages_key: str) -> tuple[str, int]:
    """Return the id of the message that made the call, and the call's position in it; ("", 0) if the state does not show it."""
    message, ids = message_of(request, messages_key)
    return (message.id or "", ids.index(request.tool_call["id"])) if message is not None else ("", 0)


def turn_of(request: ToolCallRequest, messages_key: str) -> str:
    """Return the id of the user's message that the call is part of the answer to; empty if the state does not show it."""
    return next((message.id or "" for message in reversed(_messages_of(request, messages_key)) if isinstance(message, HumanMessage)), "")


def _messages_of(request: ToolCallRequest, messages_key: str) -> Sequence[Any]:
    state = request.state
    if isinstance(state, Mapping):
        return state.get(messages_key) or ()
    return state if isinstance(state, list) else getattr(state, messages_key, None) or ()


def message_of(request: ToolCallRequest, messages_key: str) -> tuple[Any, list[Any]]:
    """Return the message that made the call and the ids of all its calls; (None, []) if the state does not show it."""
    for message in reversed(_messages_of(request, messages_key)):
        ids = [call["id"] for call in _calls_of(message)]
        if request.tool_call["id"] in ids:
            return message, ids
    return None, []


def is_cut(request: ToolCallRequest, messages_key: str) -> bool:
    """Return whether the message that made the call ended before the call was complete; False if the state does not show the message.

    The last call of a cut message may be among those that LangChain has completed or among those that it could not read.
    """
    message, _ = message_of(request, messages_key)
    said = _reasons(getattr(message, "response_metadata", None) or {})
    kinds = (getattr(message, "tool_calls", ()), _malformed_calls_of(message))
    return any(request.tool_call["id"] in cut_calls([call["id"] for call in calls], *said) for calls in kinds)


def _reasons(metadata: Mapping[str, Any]) -> list[object]:
    """Return why a message ended, in the words of its provider."""
    if metadata.get("model_provider") in _ALWAYS_WITH_REASON and not any(key in metadata for key in _REASONS):
        return ["error"]
    details = metadata.get("incomplete_details")
    reasons = [*map(metadata.get, _REASONS), details.get("reason") if isinstance(details, Mapping) else None]
    return [_REPEATED.sub(r"\1", one) if isinstance(one, str) and _REPEATED.fullmatch(one) else one for one in reasons]
