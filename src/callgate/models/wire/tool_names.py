"""Names of tools and of their parameters on the wire: each survives every provider's rules, and comes back as it was.

Providers allow letters, digits, `_` and `-` and a length; tools are called `files/read` or `crm.find`. A name that breaks the rules is sent
with its characters folded and a short digest of the whole, so that two names never meet and the same name is always sent the same way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from callgate._json import json_text, strict_object
from callgate._limits import Limits
from callgate.errors import CallFailed

__all__ = ["WireNames"]

_REFUSED = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_PARAMETER = 50
_DIGITS = (6, 12, 24, 48)
"""Of a digest; more where fewer would meet another name."""


class WireNames:
    """The names of one conversation, both ways.

    Args:
        longest: The provider's limit in characters.
        dashes: Whether the provider takes `-`.
    """

    def __init__(self, names: Iterable[str] = (), *, longest: int = 64, dashes: bool = True) -> None:
        self._longest = longest
        self._dashes = dashes
        self._sent: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._parameters: dict[str, dict[str, str]] = {}
        """By tool: the parameters that were sent by another name, by that name."""
        for name in sorted(names, key=self._fits, reverse=True):  # what need not be changed is not, whatever else there is
            self.to_wire(name)

    def to_wire(self, name: str) -> str:
        """`name` as the provider takes it; remembered."""
        wire = self._sent.get(name)
        if wire is None:
            wire = self._sent[name] = self._fitting(name)
            self._originals[wire] = name
        return wire

    def original(self, wire: str) -> str:
        """The tool's own name for a name that the model wrote; itself where it was never changed."""
        return self._originals.get(wire, wire)

    def rename_parameters(self, tool: str, own: Iterable[str], taken: re.Pattern[str]) -> Mapping[str, str]:
        """What those of a tool's parameters are sent as whose names the provider does not take; remembered.

        Args:
            tool: Its own name.
            own: The names of all its parameters.
            taken: What the provider takes.
        """
        names = list(own)
        used = {name for name in names if taken.fullmatch(name)}
        sent: dict[str, str] = {}
        for name in names:
            if name not in used:
                sent[name] = _unlike(_REFUSED.sub("_", name)[:_LONGEST_PARAMETER], name, {*used, *sent.values()})
        self._parameters[tool] = {wire: name for name, wire in sent.items()}
        return sent

    def wire_arguments(self, tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Arguments of a call in the history, by the names that its parameters are sent with."""
        sent = {name: wire for wire, name in self._parameters.get(tool, {}).items()}
        return {sent.get(name, name): value for name, value in arguments.items()}

    def original_arguments(self, tool: str, text: str) -> str:
        """Arguments that the model wrote, by the parameters' own names; the very text where none was sent by another, or it is broken."""
        own = self._parameters.get(tool)
        if not own:
            return text
        try:
            value = strict_object(text, Limits())
            return json_text({own.get(name, name): part for name, part in value.items()})
        except (CallFailed, UnicodeError):
            return text

    def _fits(self, name: str) -> bool:
        return self._folded(name) == name and 0 < len(name) <= self._longest and name[0] not in "-0123456789"

    def _folded(self, name: str) -> str:
        folded = _REFUSED.sub("_", name)
        return folded if self._dashes else folded.replace("-", "_")

    def _fitting(self, name: str) -> str:
        if self._fits(name) and name not in self._originals:
            return name
        folded = self._folded(name)
        begin = folded if folded[:1].isalpha() or folded[:1] == "_" else f"t_{folded}"
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        tried = (f"{begin[: self._longest - digits - 1]}_{digest[:digits]}" for digits in _DIGITS)
        return next(wire for wire in tried if wire not in self._originals)


def _unlike(wire: str, name: str, others: set[str]) -> str:
    """`wire`, or something like it that none of the `others` is."""
    if wire and wire not in others:
        return wire
    return f"{wire}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
