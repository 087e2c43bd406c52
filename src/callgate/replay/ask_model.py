"""Ask another model what the recorded model was asked, pass by pass, and compare the calls of both.

A recorded result can be used only for a call of the same tool with the same arguments. The comparison therefore
continues while the other model makes the recorded calls, and ends at the first difference. No call of the other model
is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from callgate._abort_signals import Control
from callgate._engine_limits import Limits
from callgate._json import canonical, strict_object
from callgate.errors import CallFailed, CallgateError, UsageError
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.replay.rebuild_run import RecordedPass, Replay
from callgate.replay.recorded_tools import tools_of
from callgate.stream import StreamLimits, StreamResult, stream_once
from callgate.tools import Tool

__all__ = ["ModelAnswer", "ModelComparison", "ask_again"]

_WHOLE = frozenset({"completed", "function_call"})
_LIMITS = Limits()


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """One pass: the recorded answer and the other model's answer."""

    iteration: int
    """The iteration of the recorded pass."""
    position: int
    """The position of the recorded pass's first event."""
    recorded: tuple[ToolCall, ...] = ()
    """The recorded model's calls."""
    calls: tuple[ToolCall, ...] = ()
    """The other model's calls."""
    text: str = ""
    """The other model's text."""
    recorded_text: str = ""
    same: bool = False
    """Whether both made the same calls; texts are not compared."""


class ModelComparison(Struct, frozen=True, kw_only=True):
    """The comparison of a run's passes with another model's answers."""

    run: str
    model: str
    """The other model, as `provider:model`."""
    recorded_model: str
    answers: tuple[ModelAnswer, ...]
    ended: str = ""
    """Why the comparison ended before the last pass; empty if it did not."""
    failed: bool = False
    """Whether it ended because the model could not be asked."""

    @property
    def differs(self) -> bool:
        return any(not one.same for one in self.answers)


async def ask_again(replay: Replay, model: Model, tools: Iterable[Tool], *, limits: StreamLimits | None = None) -> ModelComparison:
    """Ask another model what the recorded one was asked. Starts no tool.

    Args:
        model: Answers each pass. Its calls are compared and discarded.
        tools: The tools to offer; those that the run did not have are left out.
        limits: Limits on the model's silence; None for the defaults.

    Raises:
        UsageError: The run had no model, or a tool that it called is not among `tools`.
    """
    if replay.began is None:
        raise UsageError(f"Run '{replay.run[:80]}' is not an agent's run: no model was asked in it. Compare rules or tools instead.")
    specs = _offered_tools(replay, tools)
    asked = model if model.native_tools else _with_text_calls(model)
    answers: list[ModelAnswer] = []
    ended, failed = "", False
    for one in replay.passes:
        if one.status not in _WHOLE:
            continue
        try:
            given = await _ask(asked, one, specs, limits or StreamLimits())
        except CallgateError as error:
            ended, failed = f"The model could not be asked in pass {one.iteration + 1}: {error}", True
            break
        if given.status not in _WHOLE:
            ended, failed = f"The model's answer in pass {one.iteration + 1} broke off: {given.reason or given.status}.", True
            break
        answers.append(_compare(one, given))
        if not answers[-1].same:
            ended = _describe_difference(answers[-1])
            break
    return ModelComparison(
        run=replay.run,
        model=f"{model.provider}:{model.name}",
        recorded_model=replay.began.model,
        answers=tuple(answers),
        ended=ended,
        failed=failed,
    )


def _with_text_calls(model: Model) -> Model:
    from callgate.agent.text_call_model import TextCalls  # its many patterns take a tenth of a second, and few models need them

    return TextCalls(model)


def _offered_tools(replay: Replay, tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    """Return the tools that the run offered, and its exit tools."""
    began = replay.began
    assert began is not None
    offered = began.exposed.allowed if began.exposed is not None else None
    specs = (
        ToolSpec(name=tool.name, description=tool.description, schema=tool.schema.source)
        for tool in tools_of(replay, tools)
        if offered is None or tool.name in offered
    )
    return (*specs, *began.exits)


async def _ask(model: Model, one: RecordedPass, specs: tuple[ToolSpec, ...], limits: StreamLimits) -> StreamResult:
    request = ModelRequest(model=model.name, messages=one.messages, tools=specs)
    return await stream_once(model, request, StreamingContext(), control=Control(), limits=limits)


def _compare(one: RecordedPass, given: StreamResult) -> ModelAnswer:
    then = one.answer or AssistantMessage()
    return ModelAnswer(
        iteration=one.iteration,
        position=one.position,
        recorded=then.calls,
        calls=given.calls,
        text=given.text,
        recorded_text=then.text,
        same=_names_and_arguments(then.calls) == _names_and_arguments(given.calls),
    )


def _names_and_arguments(calls: Sequence[ToolCall]) -> list[tuple[str, bytes]]:
    """Return the calls in a comparable form, without ids and with canonical JSON."""
    return [(call.name, _comparable_arguments(call)) for call in calls]


def _comparable_arguments(call: ToolCall) -> bytes:
    try:
        return canonical(strict_object(call.arguments, _LIMITS))
    except CallFailed:
        return call.arguments.encode("utf-8", "backslashreplace")


def _describe_difference(one: ModelAnswer) -> str:
    which = f"In pass {one.iteration + 1}"
    if not one.calls:
        return f"{which} it answers instead of calling {_join_names(one.recorded)}, so the run would have ended here."
    if not one.recorded:
        return f"{which} it calls {_join_names(one.calls)} where the recorded model answered. That call has no recorded result."
    return (
        f"{which} it calls {_join_names(one.calls)} where the recorded model called {_join_names(one.recorded)}, or with other"
        " arguments. These calls have no recorded results, so the comparison ends here."
    )


def _join_names(calls: Sequence[ToolCall]) -> str:
    return ", ".join(call.name[:64] for call in calls[:8]) + (f" and {len(calls) - 8} more" if len(calls) > 8 else "")
