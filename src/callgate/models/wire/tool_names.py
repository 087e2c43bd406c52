"""Map tool and parameter names to names that a provider accepts, and back.

Providers allow letters, digits, `_` and `-` and a maximum length; tools are called `files/read` or `crm.find`. An invalid name is sent with
its characters replaced and a short digest of the original, so that two names never collide and a name is always sent the same way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from callgate._engine_limits import Limits
from callgate._json import json_text, strict_object
from callgate.errors import CallFailed

__all__ = ["WireNames"]

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_PARAMETER_CHARS = 50
_DIGEST_CHARS = (6, 12, 24, 48)
"""Lengths of the digest: a longer one if a shorter one collides."""


class WireNames:
    """The names of one conversation, in both directions.

    Args:
        names: The tools' own names.
        max_chars: The provider's maximum length.
        allow_dashes: Whether the provider accepts `-`.
    """

    def __init__(self, names: Iterable[str] = (), *, max_chars: int = 64, allow_dashes: bool = True) -> None:
        self._max_chars = max_chars
        self._allow_dashes = allow_dashes
        self._sent: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._parameters: dict[str, dict[str, str]] = {}
        """By tool: the parameters that were renamed, by their wire names."""
        for name in sorted(names, key=self._is_valid, reverse=True):  # valid names first, so that they are never changed
            self.to_wire(name)

    def to_wire(self, name: str) -> str:
        """Return `name` as the provider accepts it, and remember it."""
        wire = self._sent.get(name)
        if wire is None:
            wire = self._sent[name] = self._make_wire_name(name)
            self._originals[wire] = name
        return wire

    def accepts(self, name: str) -> bool:
        """Return whether the provider gets `name` as it is."""
        return self._sent[name] == name if name in self._sent else self._is_valid(name)

    def original(self, wire: str) -> str:
        """Return the tool's own name for a name that the model wrote; unchanged if it was not mapped."""
        return self._originals.get(wire, wire)

    def rename_parameters(self, tool: str, own_names: Iterable[str], accepted: re.Pattern[str]) -> Mapping[str, str]:
        """Return new names for the parameters that the provider does not accept, and remember them.

        Args:
            tool: The tool's own name.
            own_names: The names of all its parameters.
            accepted: Matches the names that the provider accepts.
        """
        names = list(own_names)
        used = {name for name in names if accepted.fullmatch(name)}
        renamed: dict[str, str] = {}
        for name in names:
            if name not in used:
                renamed[name] = _make_unique(_INVALID_CHARACTERS.sub("_", name)[:_MAX_PARAMETER_CHARS], name, {*used, *renamed.values()})
        self._parameters[tool] = {wire: name for name, wire in renamed.items()}
        return renamed

    def wire_arguments(self, tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call in the history with the wire names of its parameters."""
        renamed = {name: wire for wire, name in self._parameters.get(tool, {}).items()}
        return {renamed.get(name, name): value for name, value in arguments.items()}

    def original_arguments(self, tool: str, text: str) -> str:
        """Return arguments that the model wrote with the parameters' own names; the same text if none was renamed or it is malformed."""
        own_names = self._parameters.get(tool)
        if not own_names:
            return text
        try:
            value = strict_object(text, Limits())
            return json_text({own_names.get(name, name): part for name, part in value.items()})
        except (CallFailed, UnicodeError):
            return text

    def _is_valid(self, name: str) -> bool:
        return self._replace_invalid(name) == name and 0 < len(name) <= self._max_chars and name[0] not in "-0123456789"

    def _replace_invalid(self, name: str) -> str:
        folded = _INVALID_CHARACTERS.sub("_", name)
        return folded if self._allow_dashes else folded.replace("-", "_")

    def _make_wire_name(self, name: str) -> str:
        if self._is_valid(name) and name not in self._originals:
            return name
        folded = self._replace_invalid(name)
        begin = folded if folded[:1].isalpha() or folded[:1] == "_" else f"t_{folded}"
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        tried = (f"{begin[: self._max_chars - digits - 1]}_{digest[:digits]}" for digits in _DIGEST_CHARS)
        return next(wire for wire in tried if wire not in self._originals)


def _make_unique(wire: str, name: str, others: set[str]) -> str:
    """Return `wire`, with a digest appended if it is empty or one of `others`."""
    if wire and wire not in others:
        return wire
    return f"{wire}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
