"""Output functions of Pydantic AI, which run without callgate: refused if they have the name of a gated tool, logged if there are policies.

Pydantic AI cannot defer the call of an output function until a human has approved it, and the result is the result of the run, which a
journal does not restore.
"""

from __future__ import annotations

import logging
from weakref import WeakKeyDictionary

from pydantic_ai.output import OutputContext

from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.integrations.wrapped_tools import WrappedTools

__all__ = ["check_output_function"]

log = logging.getLogger("callgate")
_logged: WeakKeyDictionary[Engine, set[str]] = WeakKeyDictionary()
"""The names of the output functions that were logged for each engine."""
_MOST_LOGGED = 100


def check_output_function(engine: Engine, tools: WrappedTools, output: OutputContext) -> None:
    """Check an output function that is about to run, if there is one. Log once that the policies of the engine do not see its calls.

    Raises:
        UsageError: It has the name of a tool that runs on the engine, or for which an effect or option is given.
    """
    if not output.has_function:
        return
    names = [one for one in (output.tool_call and output.tool_call.tool_name, output.function_name) if one]
    for name in names:
        if tools.are_about(name):
            raise UsageError(
                f"The output function '{name}' would run without callgate, which has a tool of this name: no rule, approval or key of the"
                " tool counts for it. If it has an effect, make it a tool of the agent; else give it another name."
            )
    shown, logged = names[-1] if names else "of output_type", _logged.setdefault(engine, set())
    if engine.may_ask and shown not in logged and len(logged) < _MOST_LOGGED:
        logged.add(shown)
        log.warning("The output function %s runs without callgate: no rule counts for it. If it has an effect, make it a tool.", shown)
