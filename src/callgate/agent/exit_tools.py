"""Recognise calls of exit tools, and convert them to signals.

An exit tool reports the outcome of a task. A call of it (an exit call) never reaches the engine: it is recorded and nothing is run. Its
name is matched like the name of any tool: an almost correct name counts if only one tool or exit tool can be meant. Must not know schemas.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from callgate._json import decode
from callgate._runners.exception_results import describe
from callgate.agent.run_result import Signal
from callgate.argument_checks import matching_name
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.model_events import CallOpened, Fault, Finished, ModelEvent, TextDelta
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.request import ModelRequest

__all__ = ["ExitTools", "ModelAfterReport", "as_signal", "ask_for_more"]


class ExitTools:
    """The exit tools of one turn.

    Args:
        names: The names of the exit tools.
        others: The names of all other tools. An inexact name may refer to one of these instead.
    """

    __slots__ = ("_names", "_others")

    def __init__(self, names: Iterable[str] = (), others: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._others = frozenset(others) if self._names else frozenset()

    def __bool__(self) -> bool:
        return bool(self._names)

    def has(self, name: str) -> bool:
        """Return whether an exit tool has exactly this name."""
        return name in self._names

    def meant(self, name: str) -> str | None:
        """Return the name of the exit tool that a call with this name refers to; None if it refers to no exit tool."""
        if name in self._names:
            return name
        if not self._names or name in self._others:
            return None
        found = matching_name(name, [*self._names, *self._others])
        return found if found in self._names else None


def as_signal(call: ToolCall, iteration: int, name: str = "") -> Signal:
    """Return the signal for an exit call.

    Args:
        call: The call as the model wrote it.
        iteration: The iteration of its message.
        name: The exit tool that is meant; empty: the name in the call.
    """
    try:
        value = decode(call.arguments) if call.arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    said = call.name if name and name != call.name else ""
    arguments = value if isinstance(value, dict) else None
    return Signal(name=name or call.name, arguments=arguments, raw=call.arguments, iteration=iteration, said=said)


def ask_for_more(names: Iterable[str]) -> str:
    """Return the message that asks the model whether it has more to say after a message with exit calls only."""
    recorded = ", ".join(dict.fromkeys(names))
    return (
        f"Recorded: {recorded}. This ends nothing. If work is left, go on with it. If not, write your answer now, in full: your answer is"
        " what you write in a message without calls."
    )


class ModelAfterReport:
    """Wraps the model for a pass after its report: an exception becomes a `Fault`, because the run is complete without this pass.

    Args:
        model: The wrapped model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.provider = model.provider
        self.name = model.name
        self.native_tools = model.native_tools
        self.said_more = False
        """Whether the model has begun to write text or a call."""

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        events: AsyncIterator[ModelEvent] | None = None
        try:
            events = self._model.stream(request, context)
            async for event in events:
                self.said_more = self.said_more or isinstance(event, (TextDelta, CallOpened))
                yield event
        except Exception as error:
            kind, said = describe(error)
            fault = Fault(code=kind, message=said, retryable=False)
            yield Finished(reason="error", message=AssistantMessage(parts=()), fault=fault)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
