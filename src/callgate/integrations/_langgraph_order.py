"""The calls of one message: their places in it, and the order in which those start that `ToolNode.invoke` runs in threads.

The threads of a message reach the engine in any order, and it runs calls with effects in the order of their arrival. So each thread waits
for the calls before it in the message. Calls that only read do not wait for each other. With `ainvoke`, the calls arrive in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

__all__ = ["MessageOrder", "calls_of_input", "message_of", "place_of", "turn_of"]


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
    messages = given
    if isinstance(given, Mapping):
        messages = [] if "__type" in given else given.get(messages_key)
    elif not isinstance(given, list):
        messages = getattr(given, messages_key, None)
    if not isinstance(messages, list) or not messages:
        return ()
    if isinstance(messages[-1], Mapping):
        return messages if messages[-1].get("type") == "tool_call" else ()
    return next((message.tool_calls for message in reversed(messages) if isinstance(message, AIMessage)), ())


def place_of(request: ToolCallRequest) -> tuple[str, int]:
    """Return the id of the message that made the call, and the call's position in it; ("", 0) if the state does not show it."""
    message, ids = message_of(request)
    return (message.id or "", ids.index(request.tool_call["id"])) if message is not None else ("", 0)


def turn_of(request: ToolCallRequest) -> str:
    """Return the id of the user's message that the call is part of the answer to; empty if the state does not show it."""
    return next((message.id or "" for message in reversed(_messages_of(request)) if isinstance(message, HumanMessage)), "")


def _messages_of(request: ToolCallRequest) -> Sequence[Any]:
    state = request.state
    if isinstance(state, Mapping):
        return state.get("messages") or ()
    return state if isinstance(state, list) else getattr(state, "messages", None) or ()


def message_of(request: ToolCallRequest) -> tuple[Any, list[Any]]:
    """Return the message that made the call and the ids of all its calls; (None, []) if the state does not show it."""
    for message in reversed(_messages_of(request)):
        ids = [call["id"] for call in getattr(message, "tool_calls", ())]
        if request.tool_call["id"] in ids:
            return message, ids
    return None, []
