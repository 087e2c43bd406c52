"""The error for a value that has no JSON form, with the path to the offending part."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["NotJson", "type_name"]

_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__  # whatever a metaclass says


def type_name(value: object) -> str:
    """Return the name of a value's type without running any code of the type."""
    return _name_of(type(value))[:80]


class NotJson(Exception):
    """A value has no JSON form.

    The path is collected while the error propagates, so that conversions without errors spend no time on paths.
    """

    def __init__(self, fact: str, code: str = "non_serializable") -> None:
        super().__init__(fact)
        self.fact = fact
        self.code = code
        self.path: list[object] = []

    def below(self, key: object) -> NotJson:
        self.path.append(key)
        return self

    @property
    def where(self) -> str:
        """Return the outermost steps of the path as text."""
        steps = [_format_step(key) for key in reversed(self.path[-8:])] + ["…"] * (len(self.path) > 8)
        return f" at {''.join(steps)}" if steps else ""


def _format_step(key: object) -> str:
    if isinstance(key, int):
        return f"[{key}]" if -(2**63) < key < 2**63 else "[…]"
    return f".{key[:40]}" if isinstance(key, str) and key.isidentifier() else "[…]"
