"""`ExternalTool`: a tool of another framework as a tool of the engine.

Its name, description and input schema are the framework's own, unchanged. Its code is a function that gets the running
call and the final arguments. If a framework's wrapper makes the call (`framework_call`), the wrapper's own code runs
instead, so that what the framework injects into its tools still reaches them. Knows no framework.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Unpack

from msgspec.structs import replace

from callgate._engine_limits import Limits
from callgate._json import strict_object
from callgate._option_checks import refuse_unknown
from callgate._run_in_thread import in_thread
from callgate._schema import CompiledSchema, model_problems
from callgate.errors import CallFailed, UsageError
from callgate.integrations.framework_call import StartedElsewhere, is_validated, started_by, until_ended
from callgate.tools import FunctionTool, ToolContext, ToolOptions
from callgate.tools.argument_cleaning import Keywords, fitted
from callgate.tools.declaration_checks import effect_of
from callgate.tools.tool_declaration import TypedFindings, ValidationResult

__all__ = ["ExternalTool", "Forms", "Run", "RunSync", "in_own_thread"]

Run = Callable[[ToolContext, dict[str, Any]], Awaitable[object]]
"""The code of a tool: gets the running call and the final arguments, and returns an awaitable of the result."""
RunSync = Callable[[ToolContext, dict[str, Any]], object]
Forms = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
"""Returns forms of a call's arguments from which the framework reads the same values, with its defaults; first the one for rules and
records. Raises pydantic's `ValidationError` if the framework would not accept the arguments."""
_LIMITS = Limits()


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
        forms: Checks arguments as the framework does, before policies see them. None if only the schema decides.
        options: The options of `@tool`. `name` and `parameters`, the JSON Schema of the arguments, are required. A tool
            without a description, which frameworks allow, gets its name as the description.

    Raises:
        UsageError: An option does not exist or has an invalid value, or is missing; or the runner is `process`, which
            cannot run it.
    """

    def __init__(self, run: Run, *, source: str = "", forms: Forms | None = None, **options: Unpack[ToolOptions]) -> None:
        refuse_unknown("ExternalTool", options, ToolOptions.__annotations__)
        name, parameters = options.get("name"), options.get("parameters")
        if not callable(run) or not name or parameters is None:
            raise UsageError(
                f"ExternalTool was given run={run!r:.80}, name={name!r:.80}, parameters={parameters!r:.80}; it takes an async function of"
                " the context and the arguments, a name, and a JSON Schema."
            )
        self._run = run
        self._source = source or f"{name}, a tool of another framework"
        self._forms = forms
        if options.get("runner") == "process":
            raise UsageError(
                f"Tool '{name}' ({self._source}) has runner='process', but the tool of a framework runs in this process, where the"
                f" framework is. Leave the runner out. To run it in a process, give the engine a plain function with @tool(name='{name}',"
                " runner='process') instead, and keep the framework's tool with the same name and arguments: the engine's then runs."
            )
        options["description"] = options.get("description") or name
        super().__init__(_refuse_call, **options)

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        call = started_by(context)
        if call is None:
            return self._run(context, arguments)
        return call.start(self._own_form(call.arguments, arguments), effect_of(self))

    def has_validator(self) -> bool:
        return self._forms is not None or super().has_validator()

    def final(self, arguments: Mapping[str, object] | str) -> dict[str, Any] | None:
        """Return the arguments with which a call with these would run if nothing changed them; None if it would be refused."""
        return self._forms_of(arguments)[1]

    def _own_form(self, given: Mapping[str, object] | str, final: dict[str, Any]) -> dict[str, Any]:
        """Return the final arguments as the framework's call has them, if nothing has changed their values."""
        own, made = self._forms_of(given)
        return own if own is not None and made == final else final

    def _forms_of(self, given: Mapping[str, object] | str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return given arguments as the schema accepts them, and as the engine would record them."""
        takes, coerce = self.only(self._compiled_schema), self.coerce is not False
        try:
            own, _, problems = fitted(self._compiled_schema, takes, strict_object(given, _LIMITS), coerce=coerce, source=given)
            found = self._own_findings(strict_object(own, _LIMITS))
        except (CallFailed, ValueError):
            return None, None
        return (own, found.cleaned_params or own) if found.valid and not problems else (None, None)

    @cached_property
    def _compiled_schema(self) -> CompiledSchema:
        return self.compiled_schema()

    def _own_findings(self, params: dict[str, Any]) -> ValidationResult:
        if self._forms is None or is_validated(self.name):
            return super()._own_findings(params)
        try:
            form = next((one for one in self._forms(params) if self._compiled_schema.is_valid(one)), params)
        except ValueError as error:
            problems = model_problems(error)
            return TypedFindings(valid=False, errors=[one.message for one in problems], problems=problems)
        found = super()._own_findings(form)
        return found if not found.valid or found.cleaned_params else replace(found, cleaned_params=form)

    def has_option(self, name: str, given: ToolOptions) -> bool:
        """Return whether the tool was made with the given value of an option."""
        return name in self._options and dict(self._options)[name] == dict(given)[name]

    def shown_option(self, name: str) -> str:
        """Return an option as a message shows it."""
        made = dict(self._options)
        return f"{name}={made[name]!r:.80}" if name in made else f"no {name}"

    def not_done_advice(self, exception: str) -> str:
        if exception == StartedElsewhere.__name__:
            return "Its outcome is settled when the run is given the result of the deferred call."
        return super().not_done_advice(exception)

    def keywords(self) -> Keywords:
        return Keywords()

    def where(self) -> str:
        return self._source


async def _refuse_call(**arguments: Any) -> object:
    """Raise `NotImplementedError`: the code of an external tool is run by `invoke`."""
    raise NotImplementedError
