"""Translate globs to regular expressions in linear time.

`fnmatch.translate` searches from every `[` to the end of the glob for the closing `]`, which takes minutes for a glob of a hundred
thousand characters. Here an unclosed `[` is first written as `[[]`, which has the same meaning and is found at once. Must not know what is
matched.
"""

from __future__ import annotations

from fnmatch import translate

__all__ = ["glob_regex"]


def glob_regex(glob: str) -> str:
    """Return a regular expression that matches what `fnmatch.fnmatchcase` matches."""
    parts: list[str] = []
    last, pos = glob.rfind("]"), 0
    while (start := glob.find("[", pos)) >= 0:
        parts.append(glob[pos:start])
        first = start + 2 if glob.startswith("!", start + 1) else start + 1
        first += glob.startswith("]", first)
        if first > last:
            parts.append("[[]")
            pos = start + 1
        else:
            pos = glob.index("]", first) + 1
            parts.append(glob[start:pos])
    return translate("".join((*parts, glob[pos:])))
