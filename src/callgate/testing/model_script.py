"""Write a model's turns as plain values: text, reasoning, calls, failures and pauses.

    ["Let me look. ", Call("search", {"query": "books"})]

A `ScriptedModel` plays a script inside the program, a `ScriptedServer` over a socket. Knows no provider.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from callgate._json import json_text
from callgate.models.model_events import FinishReason, ModelEvent, Usage
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.tool_names import WireNames

__all__ = ["Beat", "Call", "End", "Fail", "Item", "Pause", "Raise", "Step", "Thought", "Turn", "items_of", "to_steps"]

_Given = TypeVar("_Given")


class Call(Struct, frozen=True):
    """The model calls a tool."""

    name: str
    arguments: Mapping[str, object] | str = "{}"
    """The arguments as an object, or as text, which may be malformed."""
    id: str = ""
    """The call's id. If empty, `call_1`, `call_2` and so on."""
    delta_chars: int = 0
    """The number of characters of the arguments per delta; 0 for all at once."""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json_text(dict(self.arguments))

    @property
    def deltas(self) -> list[str]:
        text, size = self.text, self.delta_chars or len(self.text) or 1
        return [text[at : at + size] for at in range(0, len(text), size)]


class Thought(Struct, frozen=True):
    """The model's reasoning."""

    text: str


class Pause(Struct, frozen=True):
    """A pause until an event is set, or of a number of seconds on the player's clock. A kill ends it."""

    until: asyncio.Event | float


class Beat(Struct, frozen=True):
    """A keep-alive without content."""


class Fail(Struct, frozen=True):
    """The provider reports an error in the middle of its answer."""

    code: str = "server_error"
    message: str = "The server had an error."
    retryable: bool = False


class End(Struct, frozen=True):
    """The turn's finish reason. Without it, the reason is `tool_calls` after calls, and otherwise `stop`."""

    reason: FinishReason


class Raise(Struct, frozen=True):
    """The model's code raises an exception. Only for a `ScriptedModel`."""

    error: BaseException


Item = str | Call | Thought | Pause | Beat | Fail | End | Raise | Usage
"""An item of a turn; a string is text."""

Turn = Item | Iterable[Item] | Callable[[_Given], Item | Iterable[Item]]
"""One answer: one item, several items, or a function that returns these for a request."""

Step = ModelEvent | Pause | Beat | Raise
"""The steps of playing a turn."""


def items_of(turn: Turn[_Given], given: _Given, new_id: Callable[[], str]) -> tuple[Item, ...]:
    """Return the items of a turn, each call with an id."""
    made = turn(given) if callable(turn) else turn
    items = (made,) if isinstance(made, (str, Struct)) else made
    return tuple(replace(item, id=new_id()) if isinstance(item, Call) and not item.id else item for item in items)


def to_steps(items: Iterable[Item], *, whole: bool = True) -> list[Step]:
    """Yield the steps of a turn, `Finished` last; nothing follows an error.

    Args:
        items: The turn.
        whole: False if the turn breaks off after these items.
    """
    message = MessageAssembly("scripted", WireNames(), str, calls_per_message=sys.maxsize)
    steps: list[Step] = []
    for item in items:
        if isinstance(item, (Pause, Beat, Raise)):
            steps += _take_events(message)
            steps.append(item)
            continue
        _tell(message, item)
        if isinstance(item, (Fail, End)):
            whole = whole and item != End("cut")
            break
    message.finish(complete=whole)
    return steps + _take_events(message)


def _tell(message: MessageAssembly, item: str | Call | Thought | Fail | End | Usage) -> None:
    match item:
        case str():
            message.append_text(item)
        case Thought(text=text):
            message.append_reasoning(text)
        case Call():
            call = message.open_call(item.id, item.name)
            for delta in item.deltas:
                message.append_arguments(call, delta)
            message.seal(call)
        case Fail():
            message.add_fault(item.code, item.message, retryable=item.retryable)
        case End(reason=reason):
            if reason != "cut":
                message.set_finish_reason(reason, reason)
        case Usage():
            message.set_usage(item)


def _take_events(message: MessageAssembly) -> list[Step]:
    taken: list[Step] = [*message.events]
    message.events = []
    return taken
