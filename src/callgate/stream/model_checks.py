"""Refuse what a model may not yield, in words for whoever wrote the model.

A provider's decoder never yields it; a model of the host's own may. Looked at once for each call and once for each message, never for each
piece of text.
"""

from __future__ import annotations

from callgate._options import shown
from callgate.calls import Text
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Native, Reasoning, ToolCall
from callgate.models.events import CallSealed, Fault, Finished, Usage
from callgate.models.model import Model

__all__ = ["check_call", "check_events", "check_finished", "check_model"]

_PARTS = (Text, Reasoning, ToolCall, Native)
_AS_TEXT = ": the arguments as JSON"


def check_model(model: object) -> None:
    """Refuse what cannot be asked.

    Raises:
        UsageError: It has no method `stream`.
    """
    if not callable(getattr(model, "stream", None)):
        by_name = "Make one of the name: callgate.models.providers.model(...)."
        rather = by_name if isinstance(model, str) else "Give an object with what `Model` has."
        raise UsageError(f"stream_once was given {shown(model)}, which is no model: it has no method `stream`. {rather}")


def check_events(model: Model, events: object) -> None:
    """Refuse what cannot be streamed.

    Raises:
        UsageError: It is no async iterator.
    """
    if not hasattr(events, "__aiter__"):
        raise UsageError(
            f"{type(model).__name__}.stream returned a {type(events).__name__}; it must return an async iterator of events. "
            "Write it as an async generator: async def with yield."
        )


def check_call(event: CallSealed) -> None:
    """Refuse a call that is none.

    Raises:
        UsageError: The event has no `ToolCall`, or one that is not made of text.
    """
    if not isinstance(event.call, ToolCall):
        raise UsageError(f"The model's CallSealed.call is a {type(event.call).__name__}; it must be a ToolCall.")
    _check_text(event.call)


def check_finished(event: Finished) -> None:
    """Refuse an end of a message that says nothing usable.

    Raises:
        UsageError: Message, usage or fault are not of their types.
    """
    _check("message", event.message, AssistantMessage)
    for part in _parts(event.message):
        if not isinstance(part, _PARTS):
            raise UsageError(
                f"The model's AssistantMessage.parts has a {type(part).__name__}; its parts are Text, Reasoning, ToolCall and Native."
            )
        if isinstance(part, ToolCall):
            _check_text(part)
    if event.fault is not None:
        _check("fault", event.fault, Fault)
    if event.usage is not None:
        _check("usage", event.usage, Usage)
        _check_tokens(event.usage)


def _parts(message: AssistantMessage) -> tuple[object, ...]:
    if isinstance(message.parts, (tuple, list)):
        return tuple(message.parts)
    raise UsageError(f"The model's AssistantMessage.parts is a {type(message.parts).__name__}; it must be a tuple of parts.")


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        unless = "" if name == "message" else ", or None"
        raise UsageError(f"The model's Finished.{name} is a {type(value).__name__}; it must be of type {kind.__name__}{unless}.")


def _check_text(call: ToolCall) -> None:
    if type(call.id) is type(call.name) is type(call.arguments) is str:
        return
    for name, value in (("id", call.id), ("name", call.name), ("arguments", call.arguments)):
        if not isinstance(value, str):
            raise UsageError(
                f"The model's ToolCall.{name} is a {type(value).__name__}; it must be text{_AS_TEXT if name == 'arguments' else ''}."
            )


def _check_tokens(usage: Usage) -> None:
    for name in Usage.__struct_fields__:
        value = getattr(usage, name)
        if not isinstance(value, int):
            raise UsageError(f"The model's Usage.{name} is a {type(value).__name__}; it must be a whole number, 0 where it is not known.")
