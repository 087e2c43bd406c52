"""The arguments of an approved call of Pydantic AI: those that the engine has asked about, or those that a human gave instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import ToolsetTool

from callgate.engine import Engine
from callgate.integrations._pydantic_ai_messages import made_by
from callgate.integrations._pydantic_ai_tools import plain
from callgate.integrations.framework_call import FrameworkCall
from callgate.integrations.open_questions import was_asked

__all__ = ["approved_arguments"]


async def approved_arguments(
    engine: Engine, call: FrameworkCall, ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> Mapping[str, object] | str:
    """Return the arguments that the engine has asked about, if a human has approved the call with others; else its own."""
    made = made_by(ctx)[1]
    if made is None:
        return call.arguments
    asked = plain(tool.args_validator.validate_python(made.args_as_dict(), context=ctx.validation_context), tool)
    return asked if asked != call.arguments and await was_asked(engine, call, asked) else call.arguments
