"""What the validate stage adds to the validator, and what a schema costs once."""

from __future__ import annotations

import time
from typing import Any

import jsonschema_rs

from bench.measure import Counts, Row, cpu
from callgate import Engine, Tool
from callgate._json import canonical
from callgate._pipeline.parse import parse
from callgate._pipeline.resolve import resolve
from callgate._pipeline.validate import validate
from callgate._schema import compile_schema
from callgate.calls import RawCall, Scope
from callgate.stage_types import ResolvedCall

__all__ = ["CASES", "Compiling", "Validation"]

_TEXT = {"type": "string", "maxLength": 4000}
_LABEL = {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"}
_FLAT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}, "metric": {"type": "boolean"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
_ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 200},
        "body": _TEXT,
        "priority": {"enum": ["low", "normal", "high", "urgent"]},
        "estimate": {"type": "number", "minimum": 0, "maximum": 100},
        "labels": {"type": "array", "items": _LABEL, "uniqueItems": True, "maxItems": 10},
        "reporter": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string", "pattern": "^[^@]+@[^@]+$"}},
            "required": ["name", "email"],
        },
        "steps": {
            "type": "array",
            "items": {"type": "object", "properties": {"do": _TEXT, "expect": _TEXT}, "required": ["do", "expect"]},
        },
    },
    "required": ["title", "priority", "reporter"],
    "additionalProperties": False,
}
_ROW = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"}, "stock": {"type": "boolean"}},
    "required": ["id", "name", "price"],
}
_BULK = {"type": "object", "properties": {"rows": {"type": "array", "items": _ROW}}, "required": ["rows"]}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "flat, 3 fields": (_FLAT, {"city": "Hamburg", "days": 3, "metric": True}),
    "nested, an issue": (
        _ISSUE,
        {
            "title": "The export loses rows",
            "body": "Every export of more than 10,000 rows ends early." * 4,
            "priority": "high",
            "estimate": 3.5,
            "labels": ["export", "data-loss", "regression"],
            "reporter": {"name": "Ada", "email": "ada@example.org"},
            "steps": [{"do": "open the list", "expect": "all rows"}, {"do": "export it", "expect": "a whole file"}],
        },
    ),
    "200 objects": (_BULK, {"rows": [{"id": i, "name": f"item {i}", "price": i + 0.5, "stock": i % 2 == 0} for i in range(200)]}),
}
"""Schemas as MCP servers send them, each with arguments that match."""


class _Declared(Tool):
    """A tool that arrived as JSON Schema."""

    category = "safe_chain"
    description = "Does nothing."

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name, self.parameters = name, parameters


class Validation:
    """The stage against the validator alone, on parsed arguments."""

    def __init__(self) -> None:
        self.rows = tuple(Row(f"validate / jsonschema-rs alone: {name}", most=1.5) for name in CASES)

    async def open(self, counts: Counts) -> None:
        self.scope = Scope(run="bench")
        self.pairs: list[tuple[ResolvedCall, Any]] = []
        for number, (schema, arguments) in enumerate(CASES.values()):
            engine = Engine([_Declared(f"tool_{number}", schema)])
            raw = RawCall(name=f"tool_{number}", arguments=canonical(arguments).decode())
            call = resolve(parse(raw, "bench/0/0", engine.limits, repair=False), engine.tools, self.scope)
            self.pairs.append((call, jsonschema_rs.validator_for(schema, offline=True)))

    async def round(self, counts: Counts) -> None:
        for row, (call, validator) in zip(self.rows, self.pairs, strict=True):
            times = max(10, counts.checks // (100 if len(call.parsed.raw.arguments) > 5_000 else 1))
            alone = await cpu(lambda v=validator, c=call, n=times: _alone(v, c.parsed.arguments, n), times)  # type: ignore[misc]
            row.ratio(await cpu(lambda c=call, n=times: self._stage(c, n), times), alone)  # type: ignore[misc]

    async def _stage(self, call: ResolvedCall, times: int) -> None:
        scope = self.scope
        for _ in range(times):
            validate(call, scope, coerce=True)

    async def close(self) -> None: ...


async def _alone(validator: Any, arguments: object, times: int) -> None:
    is_valid = validator.is_valid
    for _ in range(times):
        is_valid(arguments)


class Compiling:
    """A schema, once per tool."""

    def __init__(self) -> None:
        self.rows = tuple(Row(f"compiling a schema: {name}", unit="ms", most=0.3) for name in CASES)

    async def open(self, counts: Counts) -> None:
        compile_schema(_FLAT, "warm-up")

    async def round(self, counts: Counts) -> None:
        times = max(2, counts.tasks // 10)
        for row, (schema, _) in zip(self.rows, CASES.values(), strict=True):
            began = time.process_time()
            for _ in range(times):
                compile_schema(schema, "a tool")
            row.samples.append((time.process_time() - began) / times * 1000)

    async def close(self) -> None: ...
