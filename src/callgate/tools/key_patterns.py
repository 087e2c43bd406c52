"""Parse the patterns of keys, such as `refund:{order}`: those of effects and those of resources."""

from __future__ import annotations

from collections.abc import Iterable
from string import Formatter

from msgspec import Struct

from callgate.errors import UsageError

__all__ = ["Placeholder", "parse_placeholders", "unknown_placeholder"]


class Placeholder(Struct, frozen=True):
    """One `{name}` in a pattern."""

    name: str
    is_formatted: bool
    """Whether it has a format or a conversion, as in `{order:>5}` or `{order!r}`."""


def parse_placeholders(pattern: str, subject: str, example: str) -> list[Placeholder]:
    """Return the placeholders of a pattern, in order.

    Args:
        subject: The tool and its declaration, at the beginning of the error.
        example: A valid pattern, for the error.

    Raises:
        UsageError: The text is not a pattern.
    """
    try:
        return [Placeholder(name, bool(spec or conversion)) for _, name, spec, conversion in Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise UsageError(f"{subject}, which is not a pattern ({error}). Write it as '{example}'.") from error


def unknown_placeholder(name: str, known: Iterable[str], subject: str, otherwise: str) -> UsageError:
    """Return the error for a placeholder that is not among the known names.

    Args:
        otherwise: What else the author may do, after "Name one of these".
    """
    names = ", ".join(known)[:400]
    known_names = f"Known are: {names}" if names else "It has none"
    return UsageError(f"{subject}, and '{name}' is none of its parameters. {known_names}. Name one of these{otherwise}")
