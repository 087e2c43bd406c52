"""Compile a JSON Schema once, when its tool is registered, or refuse it with a reason.

Detects what would fail during a call: a schema too deep for the validator, references that leave the document or never
end, patterns that no bounded engine can run, and branches that multiply. Most schemas then validate values directly.
For schemas that are expensive for some values, the cost of each validation is estimated first (`validation_cost`).
Knows no tools or calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urldefrag

from callgate._engine_limits import Limits
from callgate._json import canonical, strict_object
from callgate._schema.references import DRAFTS, References
from callgate._schema.regex_patterns import engine_of, linear_engine
from callgate._schema.subschemas import Schema, Schemas, everywhere, mapping, pointer, subschemas
from callgate._schema.text_formats import TextFormats
from callgate._schema.tool_schema_repair import object_of_parameters, refuse, refuse_unusable, repair_schemas, split_tuples
from callgate._schema.validation_cost import EndlessSchema, ValidationCost
from callgate._schema.validation_errors import ValidationProblem, describe_errors, too_expensive
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated

__all__ = ["CompiledSchema", "compile_schema"]

MAX_DEPTH = 100
"""Maximum nesting depth of a schema, far below the depth at which the validator crashes."""
MAX_BYTES = 1_048_576
_LIMITS = Limits(arguments_bytes=MAX_BYTES, arguments_depth=MAX_DEPTH, arguments_keys=30_000)
_FACTS = {
    "invalid_json": "it is not JSON",
    "truncated": "its text is cut off",
    "not_object": "it is not an object",
    "duplicate_key": "one of its objects has a key twice",
    "bad_number": "it holds a number that is out of range",
    "bad_unicode": "its text is not valid Unicode",
    "too_deep": f"it nests deeper than {MAX_DEPTH} levels, which is the limit",
    "too_large": f"it is larger than {MAX_BYTES} bytes or {_LIMITS.arguments_keys} keys, which is the limit",
}
_DRAFTS_BY_NAME = {
    **{uri.partition("://")[2]: uri for uri in DRAFTS},
    "json-schema.org/schema": "https://json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft-05/schema": "http://json-schema.org/draft-04/schema",
    "json-schema.org/draft-03/schema": "http://json-schema.org/draft-04/schema",
}
"""Other spellings. Drafts 3 and 5 have no validator: 5 is 4 with other words, and of 3 the flags of properties are repaired."""
_CHECK_BUDGET = 20_000_000  # cost units, 0.2 s
_EXPLAIN_BUDGET = 5_000  # an error costs about 3,000 times what a check costs
_EXPLAIN_BYTES = 65_536
_INTEGER = b'"integer"'
_REFERENCES = (b'"$ref"', b'"$dynamicRef"', b'"$recursiveRef"')


class CompiledSchema:
    """A compiled schema, to validate values against.

    Attributes:
        source: The schema as models see it: as given, with repairs applied.
        notes: The repairs, a sentence each.
        is_valid: Return whether a value matches; also False if validation would take too long, which `problems` then reports.
        properties: The property names that the schema mentions at the top level.
        closed: Whether the schema allows no other properties.
        silent: Whether the schema says nothing about other properties.
        integers: The top-level properties that may have to be integers; None if integers may be required elsewhere, too.
    """

    __slots__ = ("_effort", "_validator", "closed", "integers", "is_valid", "notes", "properties", "silent", "source")

    def __init__(
        self,
        source: Schema,
        validator: Any,
        effort: ValidationCost,
        notes: tuple[str, ...] = (),
        *,
        integers: tuple[str, ...] | None = None,
    ) -> None:
        self.source = source
        self.notes = notes
        self.integers = integers
        self.properties, self.silent = effort.properties()
        self.closed = source.get("additionalProperties") is False or source.get("unevaluatedProperties") is False
        self._validator = validator
        self._effort = effort
        always_cheap = effort.bound(_LIMITS.arguments_bytes) <= _CHECK_BUDGET
        self.is_valid: Callable[[object], bool] = validator.is_valid if always_cheap else self._is_valid_within_budget

    def _is_valid_within_budget(self, value: object) -> bool:
        return not self._is_too_expensive(value) and bool(self._validator.is_valid(value))

    def _is_too_expensive(self, value: object) -> bool:
        if self._effort.bound(len(canonical(value))) <= _CHECK_BUDGET:
            return False
        return self._effort.of(value) > _CHECK_BUDGET

    def problems(self, value: object) -> list[ValidationProblem]:
        """Return the problems of `value`, at most 20. Return an empty list if it is valid."""
        if self._is_too_expensive(value):
            return [too_expensive()]
        return describe_errors(self.errors(value), self.source)

    def errors(self, value: object) -> list[Any]:
        """Return the validator's own errors: all if that is cheap, otherwise only the first."""
        errors = self.all_errors(value)
        if errors is not None:
            return errors
        if self._is_too_expensive(value) or self._validator.is_valid(value):
            return []
        if self._effort.per_value > _EXPLAIN_BUDGET:
            return [None]
        return [_first(self._validator, value)]

    def all_errors(self, value: object) -> list[Any] | None:
        """Return all of the validator's own errors, or None if that is not cheap."""
        size = len(canonical(value))
        if size <= _EXPLAIN_BYTES and (self._effort.bound(size) <= _EXPLAIN_BUDGET or self._effort.of(value) <= _EXPLAIN_BUDGET):
            return list(self._validator.iter_errors(value))
        return None


def _first(validator: Any, value: object) -> Any:
    try:
        validator.validate(value)
    except ValueError as error:
        return error
    return None


def compile_schema(
    source: Mapping[str, Any] | str | bytes,
    where: str,
    *,
    any_root: bool = False,
    dialect: str = "https://json-schema.org/draft/2020-12/schema",
    resources: Mapping[str, Any] | None = None,
    formats: TextFormats | None = None,
) -> CompiledSchema:
    """Compile `source`.

    Args:
        source: The schema, or its JSON text. Copied.
        where: What the schema belongs to, for error messages.
        any_root: Whether the schema may describe any value, not only an object.
        dialect: The draft to use if the schema names none.
        resources: Documents that references may name, by URI. Nothing is ever fetched.
        formats: The formats of text to check; None: formats are not checked.

    Raises:
        UsageError: The schema cannot be used; `code` is `schema_refused`, `remote_ref`, or an error code of the JSON text.
    """
    root = _read(source, where)
    notes: list[str] = []
    dialect = _dialect(root, dialect, resources or {}, where, notes)
    draft = DRAFTS.get(dialect, 2020)
    if not any_root:
        root = object_of_parameters(root, notes)
    schemas = everywhere(root)
    notes += repair_schemas(schemas, draft)
    if draft == 2020:
        notes += split_tuples(schemas)
    if not any_root:
        _check_root(root, where)
    refuse_unusable(schemas, where)
    validator = _validator(root, schemas, where, dialect, resources or {}, formats)
    integers = None if resources else _integers(root)
    return CompiledSchema(root, validator, _effort(root, where, draft, resources or {}), tuple(notes), integers=integers)


def _dialect(root: Schema, default: str, resources: Mapping[str, Any], where: str, notes: list[str]) -> str:
    """Return the URI of the draft that `$schema` names, also if it is written with another scheme or end. None and empty text name none."""
    named = root.get("$schema", default)
    if named in (None, ""):
        notes.append(f"$schema was {named!r} and was dropped")
        del root["$schema"]
        return default
    dialect = urldefrag(str(named)).url
    if dialect in DRAFTS or dialect in resources:
        return dialect
    plain = dialect.partition("://")[2].rstrip("/").removesuffix(".json")
    meant = _DRAFTS_BY_NAME.get(plain)
    if meant is None:
        raise refuse(where, f"its dialect {dialect[:100]!r} is unknown and nothing is fetched. Take a draft from 4 to 2020-12.")
    root["$schema"] = meant
    notes.append(f"$schema was {dialect!r} and was read as {meant!r}")
    return meant


def _integers(root: Schema) -> tuple[str, ...] | None:
    text = canonical(root)
    if _INTEGER not in text:
        return ()
    if any(word in text for word in _REFERENCES):
        return None
    named = mapping(root, "properties")
    asked = tuple(name for name, inner in named.items() if _INTEGER in canonical(inner))
    if any(not isinstance(named[name], dict) or any(subschemas(named[name])) for name in asked):
        return None
    rest = {**root, "properties": {name: inner for name, inner in named.items() if name not in asked}}
    return None if _INTEGER in canonical(rest) else asked


def _read(source: Mapping[str, Any] | str | bytes, where: str) -> Schema:
    try:
        return strict_object(source, _LIMITS)
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        raise refuse(where, f"{_FACTS[error.code]}. Correct it where it is written.") from error


def _check_root(root: Schema, where: str) -> None:
    kind = root.setdefault("type", "object")
    if kind not in ("object", ["object"]):
        raise refuse(where, f"its root has type {kind!r}; arguments are an object. Make it an object with that value as a property.")


def _validator(root: Schema, schemas: Schemas, where: str, dialect: str, resources: Mapping[str, Any], formats: TextFormats | None) -> Any:
    import jsonschema_rs

    shown = root if "$schema" in root else {"$schema": dialect, **root}
    registry = jsonschema_rs.Registry(list(resources.items())) if resources else None
    options: dict[str, Any] = {"offline": True, "registry": registry}
    if formats is not None:
        options |= {"validate_formats": True, "formats": dict(formats)}
    with suppress(Exception):  # the linear engine compiles nearly all patterns
        return jsonschema_rs.validator_for(shown, pattern_options=linear_engine(), **options)
    engine, bad = engine_of(schemas)
    if bad is not None:
        raise refuse(where, f"no bounded engine can run its pattern {bad[:100]!r}. Write it without that construct, or check in the tool.")
    try:
        return jsonschema_rs.validator_for(shown, pattern_options=engine, **options)
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            raise _remote(where, str(error.kind.error)) from error
        fact = f"at {pointer(error.instance_path)[:200] or '/'} it is not valid JSON Schema: {error.message[:200]}. Correct it there."
        raise refuse(where, fact) from error
    except Exception as error:
        if isinstance(error, jsonschema_rs.ReferencingError):
            raise _remote(where, str(error)) from error
        raise refuse(where, f"the validator does not take it: {str(error)[:200]}. Simplify it.") from error


def _remote(where: str, fact: str) -> Exception:
    return refuse(
        where, f"a $ref leaves the document and nothing is fetched ({fact[:200]}). Copy what it names into $defs.", code="remote_ref"
    )


def _effort(root: Schema, where: str, draft: int, resources: Mapping[str, Any]) -> ValidationCost:
    try:
        return ValidationCost(root, References(root, resources), draft)
    except EndlessSchema as error:
        raise refuse(where, f"{error}. Break the circle, or flatten the branches.") from error
    except LookupError as error:
        raise _remote(where, f"{error.args[0]!r} is not in it") from error
