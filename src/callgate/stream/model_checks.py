"""Check the events that a model yields, and raise `UsageError` for the author of the model.

The decoders of the providers yield only valid events; a host's own model may not. Each call and each message is checked once; text deltas
are not checked.
"""

from __future__ import annotations

from callgate._option_checks import shown
from callgate.calls import Text
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Native, Reasoning, ToolCall
from callgate.models.model_events import CallSealed, Fault, Finished, Usage
from callgate.models.model_protocol import Model

__all__ = ["check_call", "check_finished", "not_a_model_error", "not_a_stream_error"]

_PART_TYPES = (Text, Reasoning, ToolCall, Native)
_ARGUMENTS_HINT = ": the arguments as JSON"


def not_a_model_error(model: object) -> UsageError:
    """Return the error for an object without a method `stream`."""
    by_name = "Make one of the name: callgate.models.providers.model(...)."
    hint = by_name if isinstance(model, str) else "Give an object that implements `Model`."
    return UsageError(f"stream_once was given {shown(model)}, which is not a model: it has no method `stream`. {hint}")


def not_a_stream_error(model: Model, events: object) -> UsageError:
    """Return the error for a model whose `stream` returned no async iterator."""
    return UsageError(
        f"{type(model).__name__}.stream returned a {type(events).__name__}; it must return an async iterator of events. "
        "Write it as an async generator: async def with yield."
    )


def check_call(event: CallSealed) -> None:
    """Check the call of an event.

    Raises:
        UsageError: The event has no `ToolCall`, or one whose fields are not text.
    """
    call = event.call
    if not isinstance(call, ToolCall):
        raise UsageError(f"The model's CallSealed.call is a {type(call).__name__}; it must be a ToolCall.")
    if not type(call.id) is type(call.name) is type(call.arguments) is str:
        _check_text(call)


def check_finished(event: Finished) -> None:
    """Check the last event of a message.

    Raises:
        UsageError: The message, usage or fault has the wrong type.
    """
    if type(event.message) is not AssistantMessage:
        _check_type("message", event.message, AssistantMessage)
    for part in event.message.parts if type(event.message.parts) is tuple else _message_parts(event.message):
        if not isinstance(part, _PART_TYPES):
            raise UsageError(
                f"The model's AssistantMessage.parts has a {type(part).__name__}; its parts are Text, Reasoning, ToolCall and Native."
            )
        if isinstance(part, ToolCall) and not type(part.id) is type(part.name) is type(part.arguments) is str:
            _check_text(part)
    if event.fault is not None:
        _check_type("fault", event.fault, Fault)
    if event.usage is not None:
        _check_type("usage", event.usage, Usage)
        _check_tokens(event.usage)


def _message_parts(message: AssistantMessage) -> tuple[object, ...]:
    if isinstance(message.parts, (tuple, list)):
        return tuple(message.parts)
    raise UsageError(f"The model's AssistantMessage.parts is a {type(message.parts).__name__}; it must be a tuple of parts.")


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        or_none = "" if name == "message" else ", or None"
        raise UsageError(f"The model's Finished.{name} is a {type(value).__name__}; it must be of type {kind.__name__}{or_none}.")


def _check_text(call: ToolCall) -> None:
    for name, value in (("id", call.id), ("name", call.name), ("arguments", call.arguments)):
        if not isinstance(value, str):
            raise UsageError(
                f"The model's ToolCall.{name} is a {type(value).__name__}; it must be text{_ARGUMENTS_HINT if name == 'arguments' else ''}."
            )


def _check_tokens(usage: Usage) -> None:
    for name in Usage.__struct_fields__:
        value = getattr(usage, name)
        if not isinstance(value, int):
            raise UsageError(f"The model's Usage.{name} is a {type(value).__name__}; it must be an integer, 0 if unknown.")
