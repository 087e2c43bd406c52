"""`@tool`: make a tool from a function. The schema is made from its signature and docstring; nothing is assumed to be safe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import Any, ClassVar, TypedDict, Unpack, get_args, overload

from callgate._option_checks import refuse_unknown
from callgate._schema import FunctionSchema, TextFormats, function_schema, text_formats
from callgate.calls import Category, Effect
from callgate.errors import UsageError
from callgate.tools.argument_cleaning import Keywords
from callgate.tools.effect_key import KeyFromCall
from callgate.tools.required_approval import ApprovalRequirement, RequiresApproval
from callgate.tools.resource_conflicts import Declared
from callgate.tools.retry_policy import RetryPolicy
from callgate.tools.tool_context import ToolContext
from callgate.tools.tool_declaration import CacheScope, RunnerName, Tool, TypedFindings, ValidationResult, Verified

__all__ = ["FunctionTool", "ToolOptions", "tool"]


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`. Options without a description here are the attributes of `Tool` with the same name and default."""

    name: str | None
    """The tool's name; None: the function's name."""
    description: str | None
    """The tool's description; None: from the docstring."""
    parameters: Mapping[str, Any] | None
    """The input schema, as a JSON Schema; None: from the signature."""
    category: Category | None
    """The tool's category; None: `safe_chain`."""
    effect: Effect | None
    """The tool's effect; None: the category's default, or `once` if no category is given either."""
    key: KeyFromCall | None
    """The key of the tool's effect: `Tool.effect_key`."""
    requires_approval: RequiresApproval
    reads: Declared | None
    writes: Declared | None
    timeout_s: float | None
    attempt_timeout_s: float | None
    retry: RetryPolicy | None
    retryable: bool | None
    not_done: type[BaseException] | tuple[type[BaseException], ...]
    """Exceptions of the function that prove that nothing happened."""
    cacheable: bool
    cache_scope: CacheScope
    cache_ttl: float | None
    requires_actor: bool
    aliases: tuple[str, ...]
    triggers: tuple[str, ...]
    validate: Callable[[dict[str, Any]], object] | None
    """Called with the arguments after the schema has passed; returns None, an error, a list of errors or a `ValidationResult`."""
    verify: Callable[[dict[str, Any], str], object] | None
    """Called with the final arguments and the idempotency key if an outcome was lost; returns True, False, None or `Verified`."""
    output_schema: Mapping[str, Any] | None
    """The schema of the result; None: from the return annotation."""
    content_key: str | None
    runner: RunnerName | None
    parallel: int | None
    coerce: bool | None
    strict: bool


class FunctionTool(Tool):
    """A tool made from a function. It can still be called as that function."""

    wraps_result: ClassVar[bool] = True
    drops_unknown: ClassVar[bool] = True
    requires_actor = False
    _is_method = False
    _is_of_class = False
    """Whether it is a class method, below `@tool`."""
    _has_owner = False
    """Whether it is defined directly in a class body, and not wrapped in a `classmethod` or `staticmethod`."""

    def __init__(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        self._options = options.copy()
        given_function: object = function
        if isinstance(given_function, classmethod):
            function, self._is_of_class = given_function.__func__, True
        if not callable(function) or not hasattr(function, "__qualname__"):
            raise UsageError(
                f"@tool was given a {type(function).__name__} ({type(function).__module__}), which is not a function."
                " Write a def that calls it, with the parameters a model should see, and decorate that. For a tool of another framework,"
                " take callgate.integrations.import_tools([...])."
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"@tool was given {function.__qualname__}, a generator, whose code would never run. Return the whole result, and report"
                " progress with ToolContext.progress."
            )
        self.function = function
        self.name = options.pop("name", None) or function.__name__
        given = options.pop("parameters", None)
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(f"Tool '{self.name}' ({self.where()}) has parameters={given!r:.80}; it must be a JSON Schema, as a mapping.")
        self._schema: FunctionSchema = function_schema(function, self.where(), context_type=ToolContext, parameters=given)
        self._direct = self._schema.plain and self._schema.context is None and not (self._schema.fills or self._schema.renamed)
        self._derived = given is None
        self.parameters = self._schema.parameters
        properties = {} if given is not None else self.parameters.get("properties", {})
        self._defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
        self.description = options.pop("description", None) or self._schema.description
        self.output_schema = options.pop("output_schema", None) or self._schema.output
        self._validator: Callable[..., object] | None = options.pop("validate", None)
        self._verifier: Callable[..., Any] | None = options.pop("verify", None)
        self._check_functions()
        ApprovalRequirement.of(
            options.get("requires_approval", False), f"Tool '{self.name}' ({self.where()})", self.parameters.get("properties", ())
        )
        written = options.pop("category", None)
        self.category = written or "safe_chain"
        self.effect = options.pop("effect", None) or _effect_of(written, takes_key=self._schema.context is not None)
        self.effect_key = options.pop("key", None)
        declared = options.pop("not_done", ())
        self.not_done = (declared,) if isinstance(declared, type) else declared
        for option, chosen, choices in (("effect", self.effect, get_args(Effect)), ("category", self.category, get_args(Category))):
            if chosen not in choices:
                names = ", ".join(map(repr, choices))
                raise UsageError(f"Tool '{self.name}' ({self.where()}) has {option}={chosen!r:.80}; it must be one of {names}.")
        for key, value in options.items():
            setattr(self, key, value)
        self.execute = function  # type: ignore[method-assign]
        self.__doc__ = function.__doc__

    def _check_functions(self) -> None:
        for role, function in (("validate", self._validator), ("verify", self._verifier)):
            if function is not None and not callable(function):
                raise UsageError(f"Tool '{self.name}' ({self.where()}) has {role}={function!r}; it must be a function.")
        if inspect.iscoroutinefunction(self._validator):
            raise UsageError(
                f"The validate function of tool '{self.name}' ({self.where()}) is async; write a plain def, which never waits."
            )

    def __set_name__(self, owner: type, name: str) -> None:
        self._has_owner = True
        self._is_method = not self._is_of_class and _takes_self(self.function, owner)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool:
        """Return the tool for an instance, if this one is a method of its class, or for its class, if it is a class method.

        The schema does not contain `self` or `cls`. A tool that is neither is returned unchanged.
        """
        if self._is_of_class:
            return self.bound_to(type(instance) if owner is None else owner)
        below_classmethod = (
            isinstance(instance, type) and not self._has_owner
        )  # until Python 3.12, it asks for the class as for an instance
        return self.bound_to(instance) if below_classmethod or (instance is not None and self._is_method) else self

    def bound_to(self, instance: object) -> FunctionTool:
        """Return the tool whose function gets this object, or this class, as its first argument."""
        return type(self)(MethodType(self.function, instance), **self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._schema.fills:
            kwargs |= self._schema.made_defaults(inspect.signature(self.function).bind_partial(*args, **kwargs).arguments)
        return self.function(*args, **kwargs)

    def check_complete(self) -> None:
        if self._is_method and self._derived and "self" in self._schema.parameters["properties"]:
            owner = self.function.__qualname__.rpartition(".")[0].rpartition(".")[2]
            raise UsageError(
                f"{self.function.__qualname__} is a method ({self.where()}), and its object is missing. Give the method of an object, as"
                f" {owner}(...).{self.function.__name__}."
            )

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        if self._direct:
            return self.function(**arguments)
        values = self._schema.convert(arguments)
        if self._schema.context is not None:
            values[self._schema.context] = context
        return self.function(**values)

    def defaults(self) -> Mapping[str, Any]:
        return self._defaults

    def checked_formats(self) -> TextFormats | None:
        return text_formats() if self._derived else None

    def result_schema(self) -> Mapping[str, Any] | None:
        return self._schema.result if self.output_schema is None else self.output_schema

    def has_validator(self) -> bool:
        overridden = type(self).validate_parameters is not FunctionTool.validate_parameters
        return overridden or self._validator is not None or not self._schema.plain

    def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
        found = super().validate_parameters(params)
        if not found.valid:
            return found
        own = self._own_findings(found.cleaned_params)
        cleaned = (own.cleaned_params or found.cleaned_params) if own.valid else {}
        return ValidationResult(valid=own.valid, errors=own.errors, warnings=found.warnings + own.warnings, cleaned_params=cleaned)

    def own_validation(self, params: dict[str, Any]) -> ValidationResult:
        if type(self).validate_parameters is not FunctionTool.validate_parameters:
            return self.validate_parameters(params)
        return self._own_findings(params)

    def _own_findings(self, params: dict[str, Any]) -> ValidationResult:
        """Return the errors that the function's annotations and validator find in valid arguments."""
        problems = self._schema.problems(params)
        if problems:
            return TypedFindings(valid=False, errors=[one.message for one in problems], problems=problems)
        return ValidationResult(valid=True) if self._validator is None else _as_validation(self._validator(params))

    def keywords(self) -> Keywords:
        mine = Keywords.of(self.function, has_actor=False) if type(self).invoke is FunctionTool.invoke else Keywords()
        if mine.names is None:
            return mine
        renamed = self._schema.renamed
        return Keywords((mine.names - {self._schema.context or "", *renamed.values()}) | renamed.keys(), "")

    async def verify(self, params: dict[str, Any], idempotency_key: str) -> Verified:
        if self._verifier is None:
            return Verified(happened=None)
        found = self._verifier(params, idempotency_key)
        if inspect.isawaitable(found):
            found = await found
        return found if isinstance(found, Verified) else Verified(happened=found if isinstance(found, bool) else None)

    def where(self) -> str:
        code = inspect.unwrap(self.function)
        try:
            return f"{inspect.getsourcefile(code)}:{code.__code__.co_firstlineno}"
        except (TypeError, AttributeError):
            return f"{code.__module__}.{code.__qualname__}"


def _takes_self(function: Callable[..., Any], owner: type) -> bool:
    """Return whether a function of a class body is a method: its first parameter is `self`, or has neither annotation nor default."""
    if not inspect.isfunction(function) or function.__qualname__ != f"{owner.__qualname__}.{function.__name__}":
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and (first.name == "self" or (first.annotation is first.empty and first.default is first.empty))


def _effect_of(category: Category | None, *, takes_key: bool) -> Effect:
    """Return the default effect of a given category; `once` without one."""
    match category:
        case "safe_chain":
            return "none"
        case "async_required" if takes_key:
            return "idempotent"
        case _:
            return "once"


def _as_validation(found: object) -> ValidationResult:
    if isinstance(found, ValidationResult):
        return found
    if found is None or found is True:
        return ValidationResult(valid=True)
    errors = [found] if isinstance(found, str) else [str(item) for item in found] if isinstance(found, (list, tuple)) else ["refused"]
    return ValidationResult(valid=not errors, errors=errors)


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> FunctionTool: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool.

    A bare `@tool` has the category `safe_chain` and the effect `once`: its calls are never repeated, cached or run in parallel.
    `@tool(effect="none")` allows all of that.

    A parameter annotated with `ToolContext` receives the running call and is not part of the schema.

    Args:
        options: See `ToolOptions`. A function that passes them on takes `**options: Unpack[ToolOptions]`.

    Raises:
        UsageError: An option does not exist or has an invalid value, or the function cannot be a tool.
    """
    refuse_unknown("@tool", options, ToolOptions.__annotations__)
    if function is None:
        return partial(FunctionTool, **options)
    return FunctionTool(function, **options)
