"""The possible values of a parameter or fact, and whether a comparison can hold for one of them.

Determined from the simple parts of a tool's schema. If the schema says nothing, any value is possible. Pure. Knows no rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from callgate.policy.call_facts import Fact
from callgate.policy.rule_conditions import Comparison, clip

__all__ = ["ANYTHING", "PossibleValue", "of_fact", "of_parameter"]

_MOST_REFS: Final = 20
_NUMBERS: Final = ("above", "below", "at_least", "at_most")
_KINDS: Final = {str: "string", int: "integer", bool: "boolean"}


class PossibleValue(Struct, frozen=True, kw_only=True):
    """A set of possible values."""

    kind: str = ""
    """The JSON Schema type; empty for any type."""
    values: tuple[object, ...] | None = None
    """All values, if the schema lists them."""
    schema: Mapping[str, Any] = {}
    """The schema that the values are determined from."""
    root: Mapping[str, Any] = {}

    def meets(self, comparison: Comparison) -> bool:
        """Return whether a value can meet the comparison. If its operand is a list, each item of the list must be a possible value."""
        if self.kind == "array":
            return any(item.meets(comparison) for item in self.items())
        if comparison.word in ("is", "not"):
            operands = comparison.operand if isinstance(comparison.operand, list) else [comparison.operand]
            return all(self._can_be(operand) for operand in operands)
        if self.values is not None:
            return any(comparison.holds(value) for value in self.values)
        return self.kind in (("", "integer", "number") if comparison.word in _NUMBERS else ("", "string"))

    def _can_be(self, operand: object) -> bool:
        if self.values is not None:
            return any(_is_same(value, operand) for value in self.values)
        match operand:
            case bool():
                return self.kind in ("", "boolean")
            case str():
                return self.kind in ("", "string")
            case float() if not operand.is_integer():
                return self.kind in ("", "number")
        return self.kind in ("", "number", "integer")

    def items(self) -> list[PossibleValue]:
        return list(_possible_values(self.schema.get("items", {}), self.root))

    def member(self, name: str) -> list[PossibleValue]:
        """Return the possible values under this name in an object or list; empty if there are none."""
        if self.kind == "array":
            return self.items() if name.isascii() and name.isdigit() else []
        if self.kind == "":
            return [ANYTHING]
        return of_parameter(self.schema, name, self.root) if self.kind == "object" else []

    def told(self) -> str:
        if self.values is not None:
            return f"one of {', '.join(clip(value) for value in self.values[:10])}{' …' if len(self.values) > 10 else ''}"
        if self.kind == "array":
            return f"a list of items, each {told(self.items())}"
        return {"integer": "an integer", "object": "an object", "null": "null"}.get(
            self.kind, f"a {self.kind}" if self.kind else "anything"
        )


ANYTHING: Final = PossibleValue()


def told(possible: list[PossibleValue]) -> str:
    return " or ".join(dict.fromkeys(one.told() for one in possible))


def of_fact(fact: Fact) -> list[PossibleValue]:
    """Return the possible values of a fact."""
    return [PossibleValue(kind=_KINDS[fact.kind], values=fact.values or None)]


def of_parameter(schema: Mapping[str, Any], name: str, root: Mapping[str, Any]) -> list[PossibleValue]:
    """Return the possible values under a name in an object of this schema; empty if there is no such name."""
    properties = schema.get("properties")
    named: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    if name in named:
        return list(_possible_values(named[name], root))
    others = schema.get("additionalProperties", schema.get("unevaluatedProperties", not named))
    if schema.get("patternProperties") or any(word in schema for word in ("$ref", "allOf", "anyOf", "oneOf", "if")):
        return [ANYTHING]
    return list(_possible_values(others, root)) if others is not False else []


def _possible_values(schema: object, root: Mapping[str, Any], refs: int = 0) -> Iterator[PossibleValue]:
    """Yield all sets of values that a schema allows."""
    if not isinstance(schema, Mapping):
        yield ANYTHING
        return
    if "const" in schema or isinstance(schema.get("enum"), list):
        yield PossibleValue(values=(schema["const"],) if "const" in schema else tuple(schema["enum"]))
        return
    kinds = schema.get("type")
    if kinds is not None:
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield PossibleValue(kind=str(kind), schema=schema, root=root)
        return
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        for choice in choices:
            yield from _possible_values(choice, root, refs)
        return
    target = _target(schema.get("$ref"), root) if refs < _MOST_REFS else None
    if target is None:
        yield ANYTHING
        return
    yield from _possible_values(target, root, refs + 1)


def _target(reference: object, root: Mapping[str, Any]) -> object | None:
    """Return the schema that a local reference names."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: object = root
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other
