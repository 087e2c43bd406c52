"""Which names are tools, for those who read a model's text.

A form without markers of its own is a call only if it names a tool that exists. A name may come in quotes, in white space, with a
`functions.` prefix, in another case or with `-` for `_`: the engine takes it then, so the text counts as a call. Decides nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MAX_NAME_CHARS", "KnownTools"]

Schema = Mapping[str, object]
MAX_NAME_CHARS = 200
"""What is longer, in characters, is no name."""
_QUOTES = "\"'`"
_PREFIXES = ("functions.", "default_api.")
"""What GPT and Gemini put before a name."""
_NO_NAMES = frozenset({"none", "null", "n/a"})


class KnownTools:
    """The tools of one message and their schemas; none if they are unknown."""

    def __init__(self, tools: Mapping[str, Schema | None], *, taught: bool = False) -> None:
        """Know the tools.

        Args:
            tools: Their schemas, by name; None for one that is not known.
            taught: The prompt teaches the fallback format, so an object of just that form is a call of any name.
        """
        self._tools = dict(tools)
        self.fallback_taught = taught
        self._folded: dict[str, str] = {}
        for name in self._tools:
            self._folded.setdefault(_folded(name), name)

    @property
    def is_empty(self) -> bool:
        """Whether nobody said which tools there are."""
        return not self._tools

    def has(self, name: str) -> bool:
        """Whether `name` means a tool that is known to exist."""
        return len(name) <= MAX_NAME_CHARS and (name in self._tools or _folded(self.clean_name(name)) in self._folded)

    def any_begins_with(self, text: str) -> bool:
        """Whether the name of a tool that is known to exist begins so, as far as the first dot."""
        start = _folded(text.partition(".")[0])
        return any(name.startswith(start) for name in self._folded)

    def may_call(self, name: str) -> bool:
        """Whether a form without markers may call `name`: a known tool, or any name where none is known."""
        return self.has(name) or (self.is_empty and name.strip().lower() not in {"", *_NO_NAMES})

    def clean_name(self, name: str) -> str:
        """`name` as the engine should see it: as it is if there is such a tool, else without quotes, white space and prefix."""
        if name in self._tools:
            return name
        name = name.strip()
        if len(name) > 1 and name[0] in _QUOTES and name[-1] == name[0]:
            name = name[1:-1].strip()
        prefix = next(filter(name.startswith, _PREFIXES), "")
        return name.removeprefix(prefix)

    def schema(self, name: str) -> Schema | None:
        """The schema of the tool that `name` means; None if it is not known."""
        name = self.clean_name(name)
        return self._tools.get(name) or self._tools.get(self._folded.get(_folded(name), ""))


def _folded(name: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in name).replace("-", "_")
