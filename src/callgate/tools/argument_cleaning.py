"""Clean arguments by a tool's schema and code, for the validate stage and `validate_parameters`.

Values written as text are converted, integral floats become integers where the schema has integers, and arguments that the tool's code does
not accept are dropped. Each change has a note. Pure; knows no call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from callgate._json import plain_bytes
from callgate._json.malformed_text import clip
from callgate._schema import CompiledSchema, ValidationProblem, coerce_values, whole_numbers
from callgate.calls import Note

__all__ = ["Keywords", "fitted", "without"]

_MAX_PROBLEMS = 20
_MAX_DROPPED = 20
_MAYBE_WHOLE = re.compile(rb"\.0|[0-9]e")
"""Matches integral floats in JSON: they end in `.0` or have an exponent."""

Arguments = dict[str, object]
Notes = tuple[Note, ...]


class Keywords(Struct, frozen=True):
    """The keywords that a tool's code accepts."""

    names: frozenset[str] | None = None
    """The accepted keywords; None if any keyword is accepted."""
    taken: str = ""
    """The name of the parameter that receives the actor, so that no argument may have this name; empty if there is
    none.
    """

    @classmethod
    def of(cls, execute: Callable[..., Any], *, has_actor: bool) -> Keywords:
        """Return the keywords of `execute`. If its signature cannot be read, any keyword is accepted.

        Args:
            has_actor: Whether the first parameter is the actor.
        """
        try:
            parameters = list(inspect.signature(execute).parameters.values())
        except (TypeError, ValueError):
            return cls()
        first = parameters[0] if has_actor and parameters else None
        taken = first.name if first is not None and first.kind is first.POSITIONAL_OR_KEYWORD else ""
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return cls(taken=taken)
        by_name = (one.name for one in parameters if one is not first and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
        return cls(names=frozenset(by_name), taken=taken)

    def fit(self, arguments: Arguments) -> bool:
        """Whether the code accepts these arguments."""
        return self.taken not in arguments or not self.taken if self.names is None else arguments.keys() <= self.names

    def unexpected(self, arguments: Arguments) -> list[str]:
        if self.names is None:
            return [self.taken] if self.taken and self.taken in arguments else []
        return [key for key in arguments if key not in self.names]


def fitted(
    schema: CompiledSchema, takes: frozenset[str] | None, arguments: Arguments, *, coerce: bool, source: object = None
) -> tuple[Arguments, Notes, list[ValidationProblem]]:
    """Return the cleaned arguments, a note for each change, and the errors.

    Args:
        takes: The accepted arguments; None if only the schema decides.
        coerce: Whether to convert values of a wrong type if nothing is lost.
        source: The JSON text of the arguments, from which large numbers are read again.
    """
    notes: Notes = ()
    if takes is not None and not arguments.keys() <= takes:
        arguments, notes = without(arguments, [key for key in arguments if key not in takes], takes)
    if not schema.is_valid(arguments):
        changed, more = coerce_values(arguments, schema) if coerce else (arguments, ())
        if not more or not schema.is_valid(changed):
            return arguments, notes, schema.problems(changed)
        arguments, notes = changed, notes + more
    if coerce and _may_mean_integers(arguments, schema.integers):
        arguments, more, problems = whole_numbers(arguments, schema, source)
        return arguments, notes + more, problems[:_MAX_PROBLEMS]
    return arguments, notes, []


def without(arguments: Arguments, keys: list[str], known: Iterable[str]) -> tuple[Arguments, Notes]:
    """Return the arguments without these ones, with a note for each that names the most similar name in `known`."""
    dropped = sorted(keys)  # sorted, so that equal JSON has equal notes
    meant = {name.casefold(): name for name in known if name not in arguments}
    notes = tuple(
        Note(kind="dropped", path=f"/{key[:200]}", text=_dropped_note(key, meant.get(key.casefold()))) for key in dropped[:_MAX_DROPPED]
    )
    if len(dropped) > len(notes):
        notes += (Note(kind="dropped", text=f"{len(dropped) - len(notes)} more arguments were unknown and were dropped."),)
    left = frozenset(keys)
    return {key: value for key, value in arguments.items() if key not in left}, notes


def _dropped_note(key: str, meant: str | None) -> str:
    return f"{clip(key)} is not an argument and was dropped.{f' Did you mean {clip(meant)}?' if meant is not None else ''}"


def _may_mean_integers(arguments: Arguments, asked: tuple[str, ...] | None) -> bool:
    """Whether a float is in a place where the schema may have an integer: at these names, or anywhere."""
    if asked is None:
        return _MAYBE_WHOLE.search(plain_bytes(arguments)) is not None and _has_whole_float(arguments)
    return float in map(type, map(arguments.get, asked))


def _has_whole_float(node: Any) -> bool:
    for item in node.values() if node.__class__ is dict else node:
        kind = item.__class__
        if kind is float:
            if item.is_integer():
                return True
        elif (kind is dict or kind is list) and _has_whole_float(item):
            return True
    return False
