"""Derive a tool's schema from a function's signature and docstring.

Done once, when the function becomes a tool. A signature that cannot be called with a JSON object is refused then. Knows functions
and types; the type that marks the context parameter is passed in.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, get_args, get_origin

import msgspec

from callgate._schema.annotations import Convert, converter, namespace_of, schemas_of
from callgate._schema.conversion_errors import conversion_problems
from callgate._schema.field_defaults import Make, annotated_text, declared_parameter
from callgate._schema.subschemas import Schema
from callgate._schema.validation_errors import ValidationProblem
from callgate.content_parts import Part
from callgate.errors import UsageError

__all__ = ["FunctionSchema", "function_schema"]

_EMPTY = inspect.Parameter.empty
_PARTS = get_args(Part)
_CONTENT_MODULES = ("mcp", "mcp_types", "fastmcp")
"""The packages whose types are content that tools return."""
_SEQUENCES = (list, tuple, Sequence, types.UnionType, typing.Union, typing.Annotated)
_MOST_DEPTH = 8
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}: a JSON object has no such thing. Take a list parameter",
    inspect.Parameter.VAR_KEYWORD: "**{}: a model cannot know its keys. Take a dict parameter",
    inspect.Parameter.POSITIONAL_ONLY: "{} by position only: arguments come by name. Drop the '/'",
}


class FunctionSchema:
    """The schemas of a function's parameters and result.

    Attributes:
        parameters: JSON Schema of the arguments.
        description: The docstring, without the sections on parameters and results.
        output: JSON Schema of the result if the annotation describes a structure; otherwise None.
        result: JSON Schema that results must match; None if the annotation promises nothing that can be checked.
        context: The name of the parameter that receives the context, or None.
        plain: Whether no argument needs conversion.
        fills: Whether omitted arguments have defaults that Python does not know.
        renamed: The parameters by the name of their argument, for arguments that are named otherwise for the model.
    """

    __slots__ = ("_converters", "_made_defaults", "context", "description", "fills", "output", "parameters", "plain", "renamed", "result")

    def __init__(
        self,
        parameters: Schema,
        description: str,
        result: Schema | None,
        context: str | None,
        converters: Mapping[str, Convert],
        made_defaults: Mapping[str, Make],
        renamed: Mapping[str, str],
    ) -> None:
        self.parameters = parameters
        self.description = description
        self.result = result
        self.output = None if result is None or _is_scalar(result) else result
        self.context = context
        self.plain = not converters
        self.fills = bool(made_defaults)
        self.renamed = renamed
        self._made_defaults = made_defaults
        self._converters = converters

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert valid arguments to the types of the function's annotations.

        The dict is new, by the names of the parameters; plain values in it are the same objects.

        Raises:
            ValueError: A value matches its schema but not its type, such as a text that is not a date.
        """
        values = dict(arguments)
        for name, convert in self._converters.items():
            if name in values:
                values[name] = _convert_with_integers(convert, values[name])
        if self.renamed:
            values = {self.renamed.get(name, name): value for name, value in values.items()}
        return values | self.made_defaults(values)

    def made_defaults(self, given: Collection[str]) -> dict[str, object]:
        """Return the defaults of omitted parameters that are declared by a `Field`. Python does not know them."""
        return {name: make() for name, make in self._made_defaults.items() if name not in given}

    def problems(self, arguments: Mapping[str, Any]) -> list[ValidationProblem]:
        """Return the problems for which `convert` would fail with these arguments.

        Return an empty list if it would succeed.
        """
        found: list[ValidationProblem] = []
        for name, convert in self._converters.items():
            if name in arguments:
                try:
                    _convert_with_integers(convert, arguments[name])
                except ValueError as error:
                    found += conversion_problems(name, arguments[name], error)
        return found


def _convert_with_integers(convert: Convert, value: object) -> object:
    try:
        return convert(value)
    except ValueError:
        whole = _integers(value)
        if whole is value:
            raise
        return convert(whole)


def _integers(value: object) -> object:
    """Return `value` with integral floats converted to integers. JSON Schema treats both alike; Python types do not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        made = [_integers(item) for item in value]
        return made if any(one is not other for one, other in zip(made, value, strict=True)) else value
    if isinstance(value, dict):
        pairs = {key: _integers(item) for key, item in value.items()}
        return pairs if any(pairs[key] is not item for key, item in value.items()) else value
    return value


def function_schema(
    function: Callable[..., Any], where: str, *, context_type: type, parameters: Mapping[str, Any] | None = None
) -> FunctionSchema:
    """Return the schema of `function`.

    Args:
        function: A callable that accepts all its arguments by keyword.
        where: Where the function is defined, for messages.
        context_type: A parameter annotated with this type, or with this type or None, receives the context.
        parameters: A schema to use instead of the one derived from the signature. The function may then take `**` and
            have any annotation.

    Raises:
        UsageError: The function takes something that a JSON object cannot give, or an annotation has no schema.
    """
    hints = _hints(function, where, context_type)
    taken, context = _parameters(function, hints, where, context_type, any_keys=parameters is not None)
    declared = [
        declared_parameter(parameter, hints.get(name, _EMPTY), where, derived=parameters is None) for name, parameter in taken.items()
    ]
    by_argument = {one.argument: one for one in declared}
    if len(by_argument) < len(declared):
        raise UsageError(
            f"{where} has two parameters whose argument has the same name for the model. Change an alias.", code="schema_refused"
        )
    kinds = {name: _allow_none_default(one.kind, one.parameter.default) for name, one in by_argument.items()}
    description, about = _documentation(function)
    about = {name: text for name, one in by_argument.items() if (text := annotated_text(one.kind) or about.get(one.parameter.name))}
    if parameters is None:
        parameters = _schema({name: one.parameter for name, one in by_argument.items()}, kinds, about, where)
    else:
        kinds = {name: kind for name, kind in kinds.items() if _has_schema(kind, where)}
    return FunctionSchema(
        dict(parameters),
        description,
        _result(hints.get("return", _EMPTY), where),
        context,
        converters={name: made for name, kind in kinds.items() if (made := converter(kind, where)) is not None},
        made_defaults={one.parameter.name: one.make for one in declared if one.make is not None},
        renamed={name: one.parameter.name for name, one in by_argument.items() if name != one.parameter.name},
    )


def _schema(taken: Mapping[str, inspect.Parameter], kinds: Mapping[str, Any], about: Mapping[str, str], where: str) -> Schema:
    schemas, defs = schemas_of(kinds, where)
    for name, parameter in taken.items():
        _describe(schemas[name], parameter.default, about.get(name))
    required = [name for name, parameter in taken.items() if parameter.default is _EMPTY]
    made: Schema = {"type": "object", "properties": schemas, "required": required}
    return {**made, "$defs": defs} if defs else made


def _has_schema(kind: Any, where: str) -> bool:
    try:
        schemas_of({"parameter": kind}, where)
    except UsageError:
        return False
    return True


def _hints(function: Callable[..., Any], where: str, context_type: type) -> dict[str, Any]:
    actual = _unwrap_function(function)
    names = {context_type.__name__: context_type, **getattr(actual, "__globals__", {}), **namespace_of(actual)}
    try:
        return typing.get_type_hints(actual, names, names, include_extras=True)
    except Exception as error:
        raise UsageError(
            f"{where}: an annotation cannot be read ({str(error)[:200]}). Import the type at run time, or define it at module level.",
            code="schema_refused",
        ) from error


def _unwrap_function(function: Any) -> Any:
    """Return the function that has the annotations: the inner one of a partial, wrapper, method or callable object."""
    if isinstance(function, partial):
        return _unwrap_function(function.func)
    function = inspect.unwrap(function)
    if inspect.ismethod(function):
        return function.__func__
    return function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__


def _parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], where: str, context_type: type, *, any_keys: bool
) -> tuple[dict[str, inspect.Parameter], str | None]:
    taken: dict[str, inspect.Parameter] = {}
    context: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        if any_keys and parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind in _REFUSED:
            raise UsageError(f"{where} takes {_REFUSED[parameter.kind].format(name)}, or write a Tool.", code="schema_refused")
        if not _is_context(hints.get(name), context_type):
            taken[name] = parameter
        elif context is None:
            context = name
        else:
            raise UsageError(f"{where} takes the context twice ('{context}' and '{name}'). Drop one.", code="schema_refused")
    return taken, context


def _is_context(kind: Any, context_type: type) -> bool:
    if get_origin(kind) in (typing.Union, types.UnionType):
        return any(_is_context(one, context_type) for one in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, context_type)


def _allow_none_default(kind: Any, default: object) -> Any:
    """Return the type, made optional if the default is None."""
    return kind | None if default is None and kind is not _EMPTY and kind is not Any and type(None) not in get_args(kind) else kind


def _describe(schema: Schema, default: object, about: str | None) -> None:
    if about and "description" not in schema:
        schema["description"] = about
    if default is not _EMPTY:
        try:
            value = msgspec.to_builtins(default, enc_hook=str if hasattr(default, "__fspath__") else None)
        except (TypeError, ValueError, RecursionError):
            return
        if not isinstance(value, float) or math.isfinite(value):
            schema["default"] = value


def _documentation(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's description of the function, and of each parameter."""
    text = inspect.getdoc(function) or ""
    if "\n" not in text:
        return text, {}
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    about = {param.arg_name.lstrip("*"): " ".join(param.description.split()) for param in parsed.params if param.description}
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    return "\n\n".join(parts) or text, about


def _result(kind: Any, where: str) -> Schema | None:
    """Return the schema that results must match; None if the annotation is missing or allows anything."""
    if kind in (_EMPTY, None, type(None), Any) or _module_of(kind).startswith("callgate"):
        return None
    if _holds_content(kind):
        return None
    try:
        schemas, defs = schemas_of({"return": kind}, where, output=True)
    except UsageError:
        return None
    return {**schemas["return"], **({"$defs": defs} if defs else {})} or None


def _module_of(kind: Any) -> str:
    return str(getattr(kind, "__module__", ""))


def _holds_content(kind: Any, depth: int = 0, *, keyed: bool = False) -> bool:
    """Return whether values of a type may have images or files, which are shown as parts and are not JSON data.

    Args:
        keyed: Whether the values are those of a dict's keys, where bytes are text in Base64.
    """
    if kind in _PARTS or (kind in (bytes, bytearray) and not keyed) or _module_of(kind).partition(".")[0] in _CONTENT_MODULES:
        return True
    if depth >= _MOST_DEPTH:
        return False
    inner, keyed = get_args(kind), keyed or get_origin(kind) not in _SEQUENCES
    if typing.is_typeddict(kind):
        inner = tuple(_hints_of(kind).values())
    return any(_holds_content(one, depth + 1, keyed=keyed) for one in inner)


def _hints_of(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # a name that cannot be found; then the type has no schema either
        return {}


def _is_scalar(schema: Schema) -> bool:
    branches = schema.get("anyOf")
    return "enum" in schema or schema.get("type") in _SCALARS or (isinstance(branches, list) and all(map(_is_scalar, branches)))
