"""The order in which the calls of one message start that `ToolNode.invoke` runs in threads.

The threads of a message reach the engine in any order, and it runs calls with effects in the order of their arrival. So each thread waits
for the calls before it in the message. Calls that only read do not wait for each other. With `ainvoke`, the calls arrive in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage

__all__ = ["MessageOrder", "calls_of_input"]


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
