"""The arguments of an approved call of Pydantic AI: those that the engine has asked about, or those that a human gave instead.

Hooks of other capabilities may change the arguments after Pydantic AI has matched the human's answer to the call. Such a change is no
human's edit: the call is asked about again, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct
from pydantic_ai import RunContext, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import ToolsetTool

from callgate._json import json_text
from callgate.engine import Engine
from callgate.integrations._pydantic_ai_defaults import with_first_defaults
from callgate.integrations._pydantic_ai_messages import made_by
from callgate.integrations._pydantic_ai_tools import plain
from callgate.integrations.framework_call import FrameworkCall
from callgate.integrations.open_questions import was_asked, was_asked_with

__all__ = ["asked_arguments", "given_arguments", "note_answer", "watch_validation"]

_MOST = 1_000


class _GivenArguments(Struct):
    """How a human has approved a call."""

    has_own_arguments: bool = True
    """Whether the human has given other arguments than the model, as far as that can be seen."""
    given: Mapping[str, Any] | None = None
    """The arguments before their validation, as the human or the model has given them; None if that cannot be seen."""
    arguments: Mapping[str, object] | None = None
    """The arguments as Pydantic AI has validated them, before later hooks have changed them."""


_answers: WeakKeyDictionary[Engine, dict[tuple[str | None, str | None], _GivenArguments]] = WeakKeyDictionary()
"""The latest `_MOST` answers for each engine, by the ids of Pydantic AI's run and of the call."""


def note_answer(engine: Engine, ctx: RunContext[Any], call: ToolCallPart) -> None:
    """Note whether the arguments of an approved call are those of the model, before any hook changes them."""
    made = made_by(ctx)[1]
    if ctx.tool_call_approved and made is not None:
        answer, given = _answer_to(engine, ctx), call.args_as_dict()
        answer.given, answer.has_own_arguments = given, given != made.args_as_dict()


def given_arguments(engine: Engine, ctx: RunContext[Any]) -> Mapping[str, Any] | None:
    """Return the arguments of a call before their validation; None if that cannot be seen."""
    made = made_by(ctx)[1]
    if ctx.tool_call_approved:
        return _answer_to(engine, ctx).given
    return made.args_as_dict() if made is not None else None


def watch_validation(engine: Engine, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return the tool, with a validator that notes the arguments of each approved call."""
    check = tool.args_validator_func

    def note(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        if ctx.tool_call_approved:
            _answer_to(engine, ctx).arguments = plain(arguments, tool)
        return check(ctx, **arguments) if check is not None else None

    return replace(tool, args_validator_func=note)


def _answer_to(engine: Engine, ctx: RunContext[Any]) -> _GivenArguments:
    answers = _answers.setdefault(engine, {})
    answer = answers.setdefault((ctx.run_id, ctx.tool_call_id), _GivenArguments())
    if len(answers) > _MOST:
        del answers[next(iter(answers))]
    return answer


async def asked_arguments(
    engine: Engine,
    call: FrameworkCall,
    validated: Mapping[str, object],
    first: Mapping[str, object] | None,
    ctx: RunContext[Any],
    tool: ToolsetTool[Any],
) -> Mapping[str, object] | str:
    """Return the arguments that the engine has asked about, if a human has approved the call with others; else its own.

    Args:
        validated: The call's own arguments with defaults of this time.
        first: The arguments with which the call was made before, if it may have other defaults now.

    Raises:
        ToolFailed: A hook has changed the arguments that the human gave.
    """
    made, answer = made_by(ctx)[1], _answer_to(engine, ctx)
    if made is None or answer.arguments is None or not answer.has_own_arguments:
        return call.arguments
    given = made.args_as_dict()
    own = with_first_defaults(plain(tool.args_validator.validate_python(given, context=ctx.validation_context), tool), given, first)
    if answer.arguments == own:
        return call.arguments
    if answer.arguments != validated:
        await _refuse_changed(engine, call, answer.arguments)
        return call.arguments
    shown = with_first_defaults(dict(answer.arguments), answer.given, first)
    is_edit = not await was_asked_with(engine, call, shown) and await was_asked_with(engine, call, own)
    return own if is_edit else call.arguments


async def _refuse_changed(engine: Engine, call: FrameworkCall, given: Mapping[str, object]) -> None:
    if await was_asked(engine, call):
        raise ToolFailed(
            f"{call.name} has not run: a human has given it the arguments {json_text(given)}, but a hook of the agent has changed them to"
            f" {json_text(call.arguments)}, which nobody has approved. Make the call again, as a new one, to ask a human again."
        )
