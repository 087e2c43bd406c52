"""Tool names on the wire: every name survives every provider's rules, and comes back as it was.

Providers allow letters, digits, `_` and `-` and a length; tools are called `files/read` or `crm.find`. A name that breaks the rules is sent
with its characters folded and a short digest of the whole, so that two names never meet and the same name is always sent the same way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

__all__ = ["WireNames"]

_REFUSED = re.compile(r"[^A-Za-z0-9_-]")
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
        for name in sorted(names, key=self._fits, reverse=True):  # what need not be changed is not, whatever else there is
            self.sent(name)

    def sent(self, name: str) -> str:
        """`name` as the provider takes it; remembered."""
        wire = self._sent.get(name)
        if wire is None:
            wire = self._sent[name] = self._fitting(name)
            self._originals[wire] = name
        return wire

    def original(self, wire: str) -> str:
        """The tool's own name for a name that the model wrote; itself where it was never changed."""
        return self._originals.get(wire, wire)

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
