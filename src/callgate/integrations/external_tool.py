"""`ExternalTool`: a tool of another framework as a tool of the engine.

Its name, description and input schema are the framework's own, unchanged. Its code is a function that gets the running
call and the final arguments. If a framework's wrapper makes the call (`framework_call`), the wrapper's own code runs
instead, so that what the framework injects into its tools still reaches them. Knows no framework.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from callgate._option_checks import refuse_unknown
from callgate._run_in_thread import in_thread
from callgate.errors import UsageError
from callgate.integrations.framework_call import started_by, until_ended
from callgate.tools import FunctionTool, ToolContext, ToolOptions
from callgate.tools.argument_cleaning import Keywords

__all__ = ["ExternalTool", "Run", "RunSync", "in_own_thread"]

Run = Callable[[ToolContext, dict[str, Any]], Awaitable[object]]
"""The code of a tool: gets the running call and the final arguments, and returns an awaitable of the result."""
RunSync = Callable[[ToolContext, dict[str, Any]], object]


def in_own_thread(run: RunSync) -> Run:
    """Return code that runs `run` in a thread of its own.

    At the deadline the call ends. The thread cannot be stopped: its code counts as abandoned until it returns.
    """

    async def run_in_thread(context: ToolContext, arguments: dict[str, Any]) -> object:
        return await until_ended(in_thread(lambda: run(context, arguments)))

    return run_in_thread


class ExternalTool(FunctionTool):
    """A tool of another framework.

    Without an effect or a category, its effect is `once`: its calls are never repeated, cached or run beside each other.

    Args:
        run: The tool's code: an async function of the running call and the final arguments. `in_own_thread` makes one
            of a plain function.
        source: Where the tool is from, for messages.
        options: The options of `@tool`. `name` and `parameters`, the JSON Schema of the arguments, are required. A tool
            without a description, which frameworks allow, gets its name as the description.

    Raises:
        UsageError: An option does not exist or has an invalid value, or is missing; or the runner is `process`, which
            cannot run it.
    """

    def __init__(self, run: Run, *, source: str = "", **options: Unpack[ToolOptions]) -> None:
        refuse_unknown("ExternalTool", options, ToolOptions.__annotations__)
        name, parameters = options.get("name"), options.get("parameters")
        if not callable(run) or not name or parameters is None:
            raise UsageError(
                f"ExternalTool was given run={run!r:.80}, name={name!r:.80}, parameters={parameters!r:.80}; it takes an async function of"
                " the context and the arguments, a name, and a JSON Schema."
            )
        self._run = run
        self._source = source or f"{name}, a tool of another framework"
        if options.get("runner") == "process":
            raise UsageError(
                f"Tool '{name}' ({self._source}) has runner='process', but the tool of a framework runs in this process, where the"
                f" framework is. Leave the runner out. To run it in a process, give the engine a plain function with @tool(name='{name}',"
                " runner='process') instead, and keep the framework's tool with the same name and arguments: the engine's then runs."
            )
        options["description"] = options.get("description") or name
        super().__init__(_not_called, **options)

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        call = started_by(context)
        return call.start(arguments) if call is not None else self._run(context, arguments)

    def has_option(self, name: str, given: ToolOptions) -> bool:
        """Return whether the tool was made with the given value of an option."""
        return name in self._options and dict(self._options)[name] == dict(given)[name]

    def shown_option(self, name: str) -> str:
        """Return an option as a message shows it."""
        made = dict(self._options)
        return f"{name}={made[name]!r:.80}" if name in made else f"no {name}"

    def keywords(self) -> Keywords:
        return Keywords()

    def where(self) -> str:
        return self._source


async def _not_called(**arguments: Any) -> object:
    """Stand for the code of an external tool, which `invoke` runs."""
    raise NotImplementedError
