"""JSON Schema, compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["CompiledSchema", "FunctionSchema", "Problem", "compile_schema", "function_schema"]


class Problem:
    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message


class CompiledSchema:
    def __init__(self, source: dict[str, Any]) -> None:
        import jsonschema_rs

        self.source = source
        self._validator = jsonschema_rs.validator_for(source, offline=True)
        self.is_valid: Callable[[object], bool] = self._validator.is_valid
        self.properties: frozenset[str] = frozenset(source.get("properties", {}))


def compile_schema(source: Mapping[str, Any] | str | bytes, where: str, *, any_root: bool = False) -> CompiledSchema:
    return CompiledSchema(dict(source))  # type: ignore[arg-type]


class FunctionSchema:
    parameters: dict[str, Any]
    description: str
    output: dict[str, Any] | None = None
    context: str | None = None

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return dict(arguments)


def function_schema(function: Callable[..., Any], where: str, *, context_type: type) -> FunctionSchema:
    schema = FunctionSchema()
    schema.description = inspect.getdoc(function) or ""
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if parameter.annotation is context_type:
            schema.context = name
            continue
        kinds = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
        properties[name] = {"type": kinds[parameter.annotation]} if parameter.annotation in kinds else {}
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    schema.parameters = {"type": "object", "properties": properties, "required": required}
    return schema
