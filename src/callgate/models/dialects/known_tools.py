"""The tools of a message: which names are known, and their schemas.

An unmarked form is a call only if it names a known tool. A name may be quoted, surrounded by white space, prefixed with `functions.`, in
another case, or have `-` for `_`: the engine accepts such names, so the text counts as a call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["MAX_HEADER_CHARS", "MAX_NAME_CHARS", "KnownTools"]

Schema = Mapping[str, object]
MAX_NAME_CHARS = 200
"""Maximum length of a name."""
MAX_HEADER_CHARS = 400
"""Maximum length of the text that contains a name, such as a tag."""
_NAME = re.compile(r"[.\-/:]*\w[\w.\-/:]*")
_QUOTE_CHARS = "\"'`"
_NAMESPACES = ("functions.", "default_api.")
"""Prefixes that GPT and Gemini put before a name."""
_PLACEHOLDER_NAMES = frozenset({"none", "null", "n/a"})


class KnownTools:
    """The tools of one message and their schemas; empty if they are not known.

    Args:
        tools: Schemas by name; None for an unknown schema.
        fallback_taught: Whether the prompt teaches the fallback format: an object in that format is then a call of any name.
    """

    def __init__(self, tools: Mapping[str, Schema | None], *, fallback_taught: bool = False) -> None:
        self._tools = dict(tools)
        self.fallback_taught = fallback_taught
        self._by_folded: dict[str, str] = {}
        for name in self._tools:
            self._by_folded.setdefault(_fold_name(name), name)

    @property
    def is_empty(self) -> bool:
        """Whether no tools are known."""
        return not self._tools

    def has(self, name: str) -> bool:
        """Whether `name`, which may be written inexactly, refers to a known tool."""
        return len(name) <= MAX_NAME_CHARS and (name in self._tools or _fold_name(self.clean_name(name)) in self._by_folded)

    def is_name(self, text: str) -> bool:
        """Whether text between markers may be the name of a tool: a known tool, or one word that is not too long."""
        return self.has(text) or (len(text) <= MAX_NAME_CHARS and _NAME.fullmatch(self.clean_name(text)) is not None)

    def any_begins_with(self, text: str) -> bool:
        """Whether the name of a known tool, or a namespace, begins with `text`, up to its first dot."""
        start = _fold_name(text.partition(".")[0])
        return any(name.startswith(start) for name in (*self._by_folded, *_NAMESPACES))

    def may_call(self, name: str) -> bool:
        """Whether an unmarked form may call `name`: a known tool, or any name if no tools are known."""
        return self.has(name) or (self.is_empty and name.strip().lower() not in {"", *_PLACEHOLDER_NAMES})

    def clean_name(self, name: str) -> str:
        """Return `name` as the engine should see it.

        A known name is unchanged; quotes, white space and a namespace are removed from any other.
        """
        if name in self._tools:
            return name
        name = name.strip()
        if len(name) > 1 and name[0] in _QUOTE_CHARS and name[-1] == name[0]:
            name = name[1:-1].strip()
        prefix = next(filter(name.startswith, _NAMESPACES), "")
        return name.removeprefix(prefix)

    def schema(self, name: str) -> Schema | None:
        """Return the schema of the tool that `name` means; None if it is unknown."""
        name = self.clean_name(name)
        return self._tools.get(name) or self._tools.get(self._by_folded.get(_fold_name(name), ""))


def _fold_name(name: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in name).replace("-", "_")
