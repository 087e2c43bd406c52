"""Defaults that a tool of Pydantic AI makes anew each time, such as an id or the time: a call that is made again has its first ones.

Pydantic AI validates the arguments of a call each time that it is made, also when a human has approved it or a run goes on after a crash.
With other defaults, it would be another call: nobody could approve it, and its effect could happen twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.toolsets import ToolsetTool

from callgate.calls import RawCall, Scope
from callgate.engine import Engine
from callgate.integrations._pydantic_ai_messages import made_by
from callgate.integrations._pydantic_ai_tools import plain
from callgate.integrations.journaled_calls import as_recorded, read_journal, recorded_arguments

__all__ = ["first_arguments", "read_again", "with_first_defaults"]

_NO_DEFAULT = object()


async def first_arguments(
    engine: Engine, name: str, arguments: Mapping[str, Any], scope: Scope, ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> Mapping[str, object] | None:
    """Return the arguments with which a call was made before, if the model has left out some of them that may have other defaults now.

    None if the call was not made, or if the record does not have its true arguments.
    """
    made, properties = made_by(ctx)[1], tool.tool_def.parameters_json_schema.get("properties", {})
    unfixed = {one: value for one, value in arguments.items() if properties.get(one, {}).get("default", _NO_DEFAULT) != value}
    if made is None or not _omits(made.args_as_dict(), unfixed):
        return None
    journal, raw = engine.journal, RawCall(name=name, arguments=arguments)
    if as_recorded(raw, scope, engine.redactor).arguments != as_recorded(raw, scope, None).arguments:
        return None
    return await read_journal(journal, lambda: recorded_arguments(journal, name, made.tool_call_id, scope))


def _omits(given: Any, values: Any) -> bool:
    """Return whether given arguments lack some of their values after validation."""
    match given, values:
        case dict(), dict():
            return any(name not in given or _omits(given[name], value) for name, value in values.items())
        case list(), list() if len(given) == len(values):
            return any(map(_omits, given, values))
    return False


def with_first_defaults(arguments: dict[str, Any], given: Mapping[str, Any] | None, first: Mapping[str, object] | None) -> dict[str, Any]:
    """Return arguments with those of the first time in place of what was not given.

    Args:
        given: The arguments before their validation; None if that is not known.
        first: Those of the first time; None if there are none.
    """
    return arguments if given is None or first is None else cast("dict[str, Any]", _fill(given, arguments, first))


def _fill(given: Any, values: Any, first: Any) -> Any:
    match given, values, first:
        case dict(), dict(), dict():
            return {
                name: _fill(given[name], value, first.get(name)) if name in given else first.get(name, value)
                for name, value in values.items()
            }
        case list(), list(), list() if len(given) == len(values) == len(first):
            return list(map(_fill, given, values, first))
    return values


def read_again(
    arguments: dict[str, Any], given: Mapping[str, Any] | None, validated: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> dict[str, Any]:
    """Return arguments that differ from those which Pydantic AI has validated, as the tool gets them.

    Where they do not differ, what was given is read as it was given: the JSON form of a secret does not have it.

    Args:
        given: The arguments before their validation; None if that is not known.
    """
    read = partial(tool.args_validator.validate_python, context=ctx.validation_context)
    if given is not None:
        with suppress(ValidationError):
            own = read(_change(given, validated, arguments))
            if plain(own, tool) == arguments:
                return cast("dict[str, Any]", own)
    return cast("dict[str, Any]", read(arguments))


def _change(given: Any, validated: Any, wanted: Any) -> Any:
    """Return given arguments in which those have changed that shall have another value than their validation has given them."""
    match given, validated, wanted:
        case dict(), dict(), dict():
            kept = {name: value for name, value in given.items() if name in wanted or name not in validated}
            changed = {name: _change(value, validated.get(name), wanted.get(name)) for name, value in kept.items()}
            return changed | {name: value for name, value in wanted.items() if name not in given and validated.get(name) != value}
        case list(), list(), list() if len(given) == len(validated) == len(wanted):
            return list(map(_change, given, validated, wanted))
    return given if validated == wanted else wanted
