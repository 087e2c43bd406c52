"""Globs as regular expressions, in time that grows with the glob's length and no faster.

`fnmatch.translate` looks from every `[` to the end of the glob for the `]` that closes it, which takes minutes for a glob of a hundred
thousand. Here a `[` that nothing closes is written as `[[]` first, which means the same and is found at once. Must not know what is
matched.
"""

from __future__ import annotations

from fnmatch import translate

__all__ = ["glob_regex"]


def glob_regex(glob: str) -> str:
    """A regular expression that matches what `fnmatch.fnmatchcase` matches."""
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
