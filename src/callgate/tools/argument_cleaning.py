"""Put arguments right where a tool's schema and its code alone can say how: what a call is checked with, and `validate_parameters`.

Values that were written as text are coerced, integral floats become integers where integers are asked for, and what the tool's code could
not take is dropped; each change has a note. Pure. Knows no call on its way.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from callgate._json import plain_bytes
from callgate._json.malformed_text import clip
from callgate._schema import CompiledSchema, ValidationProblem, coerced, whole_numbers
from callgate.calls import Note

__all__ = ["Keywords", "fitted", "without"]

_MAX_PROBLEMS = 20
_MAX_DROPPED = 20
_MAYBE_WHOLE = re.compile(rb"\.0|[0-9]e")
"""In JSON, whole floats end in `.0` or, where they are large, have an exponent."""

Arguments = dict[str, object]
Notes = tuple[Note, ...]


class Keywords(Struct, frozen=True):
    """The keywords by which a tool's code can be called."""

    names: frozenset[str] | None = None
    """None: any."""
    taken: str = ""
    """One that it has for something else: the actor."""

    @classmethod
    def of(cls, execute: Callable[..., Any], *, has_actor: bool) -> Keywords:
        """Those of `execute`; any, where Python cannot tell.

        Args:
            has_actor: Whether its first parameter is the actor.
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
        """Whether a call with these can be made."""
        return self.taken not in arguments if self.names is None else arguments.keys() <= self.names

    def unexpected(self, arguments: Arguments) -> list[str]:
        return [key for key in arguments if (key == self.taken if self.names is None else key not in self.names)]


def fitted(
    schema: CompiledSchema, takes: frozenset[str] | None, arguments: Arguments, *, coerce: bool, source: object = None
) -> tuple[Arguments, Notes, list[ValidationProblem]]:
    """The arguments as the schema takes them, a note for each change, and what is wrong where they cannot be.

    Args:
        takes: The only ones that count; None: unknown ones are the schema's business.
        coerce: Whether values of a wrong type are put right where nothing is lost.
        source: What they were read from, where large numbers are read from it again.
    """
    notes: Notes = ()
    if takes is not None and not arguments.keys() <= takes:
        arguments, notes = without(arguments, [key for key in arguments if key not in takes], takes)
    if not schema.is_valid(arguments):
        changed, more = coerced(arguments, schema) if coerce else (arguments, ())
        if not more or not schema.is_valid(changed):
            return arguments, notes, schema.problems(changed)
        arguments, notes = changed, notes + more
    if coerce and _may_mean_integers(arguments, schema.integers):
        arguments, more, problems = whole_numbers(arguments, schema, source)
        return arguments, notes + more, problems[:_MAX_PROBLEMS]
    return arguments, notes, []


def without(arguments: Arguments, keys: list[str], known: Iterable[str]) -> tuple[Arguments, Notes]:
    """The arguments without these, and a note for each, with the one of `known` that was meant."""
    dropped = sorted(keys)  # the same JSON is told the same, whatever its order
    meant = {name.casefold(): name for name in known if name not in arguments}
    notes = tuple(
        Note(kind="dropped", path=f"/{key[:200]}", text=_dropped(key, meant.get(key.casefold()))) for key in dropped[:_MAX_DROPPED]
    )
    if len(dropped) > len(notes):
        notes += (Note(kind="dropped", text=f"{len(dropped) - len(notes)} more arguments were unknown and were dropped."),)
    left = frozenset(keys)
    return {key: value for key, value in arguments.items() if key not in left}, notes


def _dropped(key: str, meant: str | None) -> str:
    return f"{clip(key)} is no argument and was dropped.{f' Did you mean {clip(meant)}?' if meant is not None else ''}"


def _may_mean_integers(arguments: Arguments, asked: tuple[str, ...] | None) -> bool:
    """Whether a float stands where an integer may be asked for: at these names, or anywhere."""
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
