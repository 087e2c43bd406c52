"""The engine's checks of a call as pure functions: strict parse, repair, name resolution and schema check.

For programs that have no engine, or want one of its checks. The stages of the route use the same code, so a call gets the same answer here
and there. Knows nothing of tools, calls, policies and secrets; the texts quote names and values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from callgate._engine_limits import Limits
from callgate._json import strict_object, strict_value
from callgate._json.json_repair import repair_text
from callgate._json.malformed_text import clip
from callgate._option_checks import by_name, check, refused
from callgate._schema import CompiledSchema, ValidationProblem, coerce_values, compile_schema
from callgate.calls import Note
from callgate.errors import ArgumentsInvalid, ArgumentsMalformed, ArgumentsTruncated
from callgate.tools.argument_cleaning import fitted

__all__ = [
    "CheckedArguments",
    "RepairedJson",
    "ResolvedName",
    "ValidationProblem",
    "check_arguments",
    "closest_names",
    "matching_name",
    "name_note",
    "parse_arguments",
    "possible_names",
    "repair_json",
    "repair_note",
    "resolve_name",
]

_LIMITS = Limits()
_MAX_NAME = 200
"""More than the length of any tool's name with a prefix and quotes; a longer name is not looked up."""
_QUOTES = "\"'`"
_WHITE = " \t\r\n"
_PREFIXES = tuple(f"{space}{mark}" for space in ("functions", "function", "default_api", "tools", "tool") for mark in ".:")
_SUFFIX = re.compile(r"(?:\(\s*\)?|:[0-9]{0,4}|(?:\s*<\|\w+\|>\s*\w*)+)$")
"""Empty parentheses, a colon with the index of the call, or special tokens of the model, each with a word. A tool's name cannot contain
these characters.
"""


class RepairedJson(Struct, frozen=True, kw_only=True):
    """The arguments that malformed JSON probably means."""

    value: object
    notes: tuple[Note, ...] = ()
    """The repairs and conversions; empty if the text was valid."""


class ResolvedName(Struct, frozen=True, kw_only=True):
    """The known name that a given name probably means."""

    name: str | None
    """The known name; None if the given one means none or several."""
    notes: tuple[Note, ...] = ()
    """The differences that were ignored; empty if the name was exact."""
    suggestions: tuple[str, ...] = ()
    """If it means several: these. If it means none: at most three known names that are similar, the most similar first."""


class CheckedArguments(Struct, frozen=True, kw_only=True):
    """Arguments after the check against a schema."""

    arguments: dict[str, object]
    """The valid arguments, with the conversions of the notes. If there are errors, the given ones."""
    notes: tuple[Note, ...] = ()
    errors: tuple[ValidationProblem, ...] = ()
    """All errors, at most 20. Each has `path`, `message`, `expected`, `got`, and `passes`: a value that would be valid, if one is known."""

    @property
    def valid(self) -> bool:
        return not self.errors


@by_name
def parse_arguments(text: str | bytes | Mapping[str, object], *, limits: Limits | None = None) -> dict[str, object]:
    """Return a call's arguments as one JSON object. Empty text and `null` give `{}`.

    Args:
        text: Untrusted. A mapping is checked by the same rules and copied.
        limits: `arguments_bytes`, `arguments_depth` and `arguments_keys` count.

    Raises:
        ArgumentsMalformed: It is not a JSON object, has a key twice, a number out of range, invalid Unicode, or exceeds a limit. `code`
            says which; the text says where, and what to send instead.
        ArgumentsTruncated: The text ends inside an object, a list or a string.
        UsageError: It is neither text nor bytes nor a mapping.
    """
    if not isinstance(text, (str, bytes, Mapping)):
        raise refused("parse_arguments", "text", text, "text, bytes or a dict")
    check("parse_arguments", "limits", limits, Limits | None)
    return strict_object(text, limits or _LIMITS)


@by_name
def repair_json(text: str, schema: Mapping[str, Any] | None = None, *, limits: Limits | None = None) -> RepairedJson:
    """Return the one value that complete but malformed JSON means.

    Other quotes, words without quotes, Python's constants, comments, code fences, and missing or additional commas are repaired. Text that
    was cut off, or that can mean several values, is refused, because a guess may do something that the model did not ask for.

    Args:
        schema: If given, an object is converted to it without loss, such as `"5"` to `5`, and has to match it.
        limits: `repair_bytes` and those of `parse_arguments` count.

    Raises:
        ArgumentsMalformed, ArgumentsTruncated: The text is refused. The error is that of the strict parser.
        ArgumentsInvalid: The value does not match the schema.
        UsageError: `text` is not text, or the schema cannot be used.
    """
    check("repair_json", "text", text, str)
    check("repair_json", "limits", limits, Limits | None)
    limits = limits or _LIMITS
    certain, value = repair_text(text, limits)
    fault = _fault(text, limits)
    if not certain:
        raise fault or ArgumentsMalformed("The text is empty. Send the arguments as one JSON object.", code="invalid_json")
    notes: tuple[Note, ...] = () if fault is None else (repair_note(fault),)
    if schema is None:
        return RepairedJson(value=value, notes=notes)
    compiled = compile_schema(schema, "the value", any_root=True)
    if isinstance(value, dict) and not compiled.is_valid(value):
        value, more = coerce_values(value, compiled)
        notes += more
    _check(value, compiled)
    return RepairedJson(value=value, notes=notes)


@by_name
def resolve_name(name: str, known: Iterable[str]) -> ResolvedName:
    """Return the known name that a name means.

    An equal name is the only one, also after white space and quotes around `name` are removed. Otherwise, prefixes such as `functions.` and
    suffixes such as `()` and special tokens of the model are ignored, then case and the difference between `-` and `_`. Look-alike letters
    are different letters.

    Raises:
        UsageError: `name` is not text, or `known` is not an iterable of texts.
    """
    names = _check_names("resolve_name", name, known)
    found = possible_names(name, names)
    if len(found) != 1:
        return ResolvedName(name=None, suggestions=tuple(found) or closest_names(name, names))
    return ResolvedName(name=found[0], notes=() if found[0] == name else (name_note(name, found[0]),))


def name_note(name: str, found: str) -> Note:
    """Return the note that a name was taken for a known one."""
    return Note(kind="name", text=f"The name came as {clip(name)} and was taken for {found!r}.")


@by_name
def matching_name(name: str, known: Iterable[str]) -> str | None:
    """Return the one known name that a name means, or None if it means none or several. Ignores what `resolve_name` ignores.

    Raises:
        UsageError: `name` is not text, or `known` is not an iterable of texts.
    """
    found = possible_names(name, _check_names("matching_name", name, known))
    return found[0] if len(found) == 1 else None


def _check_names(owner: str, name: object, known: Iterable[str]) -> list[str]:
    """Return the known names. Raise `UsageError` if a value has the wrong type."""
    check(owner, "name", name, str)
    names = list(known) if isinstance(known, Iterable) and not isinstance(known, (str, bytes)) else [known]
    if not all(isinstance(one, str) for one in names) or isinstance(known, str):
        raise refused(owner, "known", known, "a list of names")
    return names


def possible_names(name: str, known: Iterable[str]) -> list[str]:
    """Return all known names that a name can mean. Ignores what `resolve_name` ignores."""
    if len(name) > _MAX_NAME:
        return []
    names = list(dict.fromkeys(known))
    bare = _strip_quotes(name)
    for exact in (name, bare):
        if exact in names:
            return [exact]
    found: dict[str, None] = {}
    for form in _forms(bare):
        folded = _fold(form)
        found |= dict.fromkeys([form] if form in names else [one for one in names if form and _fold(one) == folded])
    return list(found)


def closest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return at most three similar names, the most similar first."""
    by_fold = {_fold(one): one for one in list(known)[:2_000]}
    near = difflib.get_close_matches(_fold(_forms(_strip_quotes(name[:_MAX_NAME]))[-1]), by_fold, n=3, cutoff=0.6)
    return tuple([by_fold[one] for one in near])


@by_name
def check_arguments(
    schema: Mapping[str, Any], arguments: str | bytes | Mapping[str, object], *, coerce: bool = True, limits: Limits | None = None
) -> CheckedArguments:
    """Check arguments against the JSON Schema of a tool. All errors are found at once.

    The schema is compiled on each call; an engine compiles that of a tool once.

    Args:
        schema: JSON Schema of an object, draft 4 to 2020-12.
        arguments: The arguments, or their JSON text, which is parsed as by `parse_arguments`. They are not changed.
        coerce: Whether to convert values of a wrong type if nothing is lost, such as `"5"` to `5`.

    Raises:
        UsageError: The schema cannot be used, or the arguments are neither text nor bytes nor a mapping.
        ArgumentsMalformed, ArgumentsTruncated: See `parse_arguments`.
    """
    if not isinstance(arguments, (str, bytes, Mapping)):
        raise refused("check_arguments", "arguments", arguments, "text, bytes or a dict")
    given = parse_arguments(arguments, limits=limits)
    cleaned, notes, problems = fitted(compile_schema(schema, "the arguments"), None, given, coerce=coerce, source=arguments)
    return CheckedArguments(arguments=given if problems else cleaned, notes=notes, errors=tuple(problems))


def _fault(text: str, limits: Limits) -> ArgumentsMalformed | ArgumentsTruncated | None:
    """Return the error of the strict parser; None if the text is valid."""
    try:
        strict_value(text, limits)
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        return error
    return None


def repair_note(fault: Exception) -> Note:
    """Return the note that the text which gave this error was repaired."""
    fact = str(fault).partition(". ")[0][:300].rstrip(".")  # without the advice that follows
    return Note(kind="json_repaired", text=f"The arguments were malformed JSON and were repaired: {fact}.")


def _check(value: object, schema: CompiledSchema) -> None:
    if schema.is_valid(value):
        return
    problems = schema.problems(value)
    sentences = "\n".join(f"- {problem.message[:600]}" for problem in problems)
    errors = [{"path": one.path, "expected": one.expected, "got": one.got, "passes": one.passes} for one in problems]
    raise ArgumentsInvalid(f"The value does not match the schema. Correct these:\n{sentences}", details={"errors": errors})


def _strip_quotes(name: str) -> str:
    name = name.strip(_WHITE)
    if len(name) > 1 and name[0] in _QUOTES and name[-1] == name[0]:
        name = name[1:-1].strip(_WHITE)
    return name


def _forms(bare: str) -> list[str]:
    """Return the name as written, and without a prefix or suffix that models add."""
    whole = _SUFFIX.sub("", bare).rstrip(_WHITE)
    prefix = next((one for one in _PREFIXES if whole.lower().startswith(one)), "")
    return list(dict.fromkeys((whole, whole[len(prefix) :])))


def _fold(name: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in name).replace("-", "_")
