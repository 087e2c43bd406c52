"""Parse and match one line of a `.gitignore` file as git does.

Follows git's wildmatch. Names are compared as bytes, so `?` matches one byte. A line that can match nothing in git,
such as one that ends with a backslash, matches nothing here. Reads no files, and does not limit how long a match may
take.
"""

from __future__ import annotations

import os
import re
from typing import Final

from msgspec import Struct

__all__ = ["IgnorePattern", "pattern"]

_SPECIAL: Final = re.compile(rb"[*?\[\\]")
_NEVER: Final = b"(?!)"
_CLASSES: Final[dict[bytes, frozenset[int]]] = {
    name: frozenset(code for code in range(128) if re.fullmatch(chars, bytes([code]), re.DOTALL))
    for name, chars in {
        b"alnum": rb"[0-9A-Za-z]",
        b"alpha": rb"[A-Za-z]",
        b"blank": rb"[ \t]",
        b"cntrl": rb"[\x00-\x1f\x7f]",
        b"digit": rb"[0-9]",
        b"graph": rb"[!-~]",
        b"lower": rb"[a-z]",
        b"print": rb"[ -~]",
        b"punct": rb"[!-/:-@\[-`{-~]",
        b"space": rb"[ \t\n\r\x0b\x0c]",
        b"upper": rb"[A-Z]",
        b"xdigit": rb"[0-9A-Fa-f]",
    }.items()
}


class IgnorePattern(Struct, frozen=True):
    """One pattern, and whether it ignores the paths that it matches."""

    ignores: bool
    """False if the line begins with `!`."""
    folders_only: bool
    by_name: bool
    """Whether only the last name of a path is compared."""
    regex: re.Pattern[bytes]

    def matches(self, path: str, *, directory: bool) -> bool:
        """Return whether the pattern matches `path` itself, not a folder above it.

        Args:
            path: The path relative to the ignore file's folder.
        """
        if self.folders_only and not directory:
            return False
        return self.regex.fullmatch(os.fsencode(path.rpartition("/")[2] if self.by_name else path)) is not None


def pattern(line: str) -> IgnorePattern | None:
    """Return the pattern of a line. Return None if the line has no pattern, such as a comment.

    Args:
        line: The line without its line end.
    """
    if line.startswith("#"):
        return None
    text = os.fsencode(_trim_spaces(line))
    ignores = not text.startswith(b"!")
    text = text if ignores else text[1:]
    folders_only = text.endswith(b"/")
    text = text[:-1] if folders_only else text
    if not text:
        return None
    by_name = b"/" not in text
    return IgnorePattern(ignores, folders_only, by_name, re.compile(_regex(text.removeprefix(b"/")), re.DOTALL))


def _trim_spaces(line: str) -> str:
    """Return `line` without trailing spaces. A space after a backslash is kept."""
    kept = line.rstrip(" ")
    escapes = len(kept) - len(kept.rstrip("\\"))
    return line[: len(kept) + escapes % 2]


def _regex(text: bytes) -> bytes:
    """Return a regular expression that matches a whole path or name."""
    special = _SPECIAL.search(text)
    if special is None:
        return re.escape(text)
    begin = at = special.start()
    parts = [re.escape(text[:begin])]
    while at < len(text):
        part, at = _part(text, at, begin)
        parts.append(part)
    return b"".join(parts)


def _part(text: bytes, at: int, begin: int) -> tuple[bytes, int]:
    """Return the regular expression for the element at `at`, and the position of the next element."""
    match text[at : at + 1]:
        case b"*":
            return _stars(text, at, begin)
        case b"?":
            return b"[^/]", at + 1
        case b"[":
            return _bracket(text, at + 1)
        case b"\\":
            return (re.escape(text[at + 1 : at + 2]), at + 2) if at + 1 < len(text) else (_NEVER, at + 1)
        case char:
            return re.escape(char), at + 1


def _stars(text: bytes, at: int, begin: int) -> tuple[bytes, int]:
    """Translate consecutive stars. Two or more that stand for whole names match any number of names."""
    end = at
    while text[end : end + 1] == b"*":
        end += 1
    rest = text[end : end + 2]
    if end - at < 2 or not (at == begin or text[at - 1 : at] == b"/") or not (rest[:1] in (b"", b"/") or rest == b"\\/"):
        return b"[^/]*", end
    return (b"(?:.*/)?", end + 1) if rest[:1] == b"/" else (b".*", end)


def _bracket(text: bytes, at: int) -> tuple[bytes, int]:
    """Translate a character set, from the position after its `[`. A set that is not closed matches nothing."""
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    found: set[int] = set()
    before, first = 0, True
    while at < len(text) and (first or text[at : at + 1] != b"]"):
        first = False
        members, before, at = _member(text, at, before)
        if members is None:
            return _NEVER, len(text)
        found |= members
    if at >= len(text):
        return _NEVER, len(text)
    codes = (set(range(256)) - found if negated else found) - {ord("/")}
    return (b"[" + b"".join(b"\\x%02x" % code for code in sorted(codes)) + b"]" if codes else _NEVER), at + 1


def _member(text: bytes, at: int, before: int) -> tuple[set[int] | frozenset[int] | None, int, int]:
    """Translate the member of a character set at `at`.

    Returns:
        The member's characters (None if it is malformed), the character that may begin a range (0 if none), and the
            position of the next member.
    """
    char = text[at : at + 1]
    if char == b"-" and before and text[at + 1 : at + 2] not in (b"", b"]"):
        last = at + 2 if text[at + 1 : at + 2] == b"\\" else at + 1
        return (set(range(before, text[last] + 1)), 0, last + 1) if last < len(text) else (None, 0, at)
    if text[at : at + 2] == b"[:":
        end = text.find(b"]", at + 2)
        if end < 0:
            return None, 0, at
        if end > at + 2 and text[end - 1 : end] == b":":
            return _CLASSES.get(text[at + 2 : end - 1]), 0, end + 1
    at += char == b"\\"
    return ({text[at]}, text[at], at + 1) if at < len(text) else (None, 0, at)
