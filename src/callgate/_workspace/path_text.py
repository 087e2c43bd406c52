"""Paths as text: what a path may look like, where a root's part of it ends, and how it is shown. Pure.

Text decides only what is refused early and what a key is called. Whether a path stays inside the root is the kernel's answer
(`open_beneath`): nothing here resolves `..` or links.
"""

from __future__ import annotations

import html
import os
import unicodedata
from urllib.parse import unquote

__all__ = ["MAX_NAME", "MAX_PATH", "UNUSABLE", "below", "fault", "is_plain", "lexical", "reads_as_dotdot", "shown", "split"]

MAX_NAME = 255
MAX_PATH = 4095
UNUSABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of characters that no path may hold: they break lines, logs and encodings."""
_ESCAPED = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})
_PLAIN_MARKS = frozenset(" ._-+@()[],=#!'")
_SHOWN_CHARS = 160


def shown(path: str) -> str:
    """`path` in quotes for messages: control and format characters as escapes, the middle of a long one left out."""
    half = _SHOWN_CHARS // 2
    cut = path if len(path) <= _SHOWN_CHARS else f"{path[:half]}…{path[-half:]}"
    return "'" + "".join(_escape(char) for char in cut) + "'"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if unicodedata.category(char) in _ESCAPED else char


def fault(path: str) -> str | None:
    """`name` or `too_long` where no file operation takes this text, else None."""
    if not path or any(unicodedata.category(char) in UNUSABLE for char in path):
        return "name"
    if len(os.fsencode(path)) > MAX_PATH or any(len(os.fsencode(name)) > MAX_NAME for name in path.split("/")):
        return "too_long"
    return None


def below(path: str, roots: tuple[str, ...]) -> str | None:
    """The part of `path` below the root: itself where relative, the rest where a spelling of the root begins it, else None.

    Compared name by name, so that a sibling whose name begins like the root's is outside.
    """
    if not path.startswith("/"):
        return path
    for root in roots:
        rest = _rest(path.split("/"), [name for name in root.split("/") if name])
        if rest is not None:
            return rest
    return None


def _rest(names: list[str], root: list[str]) -> str | None:
    matched = 0
    for position, name in enumerate(names):
        if name in ("", "."):
            continue
        if matched == len(root):
            return "/".join(names[position:])
        if name != root[matched]:
            return None
        matched += 1
    return "." if matched == len(root) else None


def split(path: str) -> tuple[str, str]:
    """Parent (`.` for none) and last name of a relative path; the name is empty where the path cannot name a new entry."""
    parent, _, name = path.rpartition("/")
    return parent or ".", "" if name in ("", ".", "..") else name


def lexical(path: str) -> str | None:
    """The one spelling of a relative path (`a/b`, empty for the root), or None where text alone cannot tell (`..`, absolute)."""
    names = path.split("/")
    if path.startswith("/") or ".." in names:
        return None
    return "/".join(name for name in names if name not in ("", "."))


def is_plain(name: str) -> bool:
    """Whether a missing folder of this name may be made on the way to a new file.

    `~`, `$HOME`, `file:`, `C:` or `....` as a folder is a spelling that some other program expands: making it hides a mistake.
    """
    return name.strip(". ") != "" and all(char in _PLAIN_MARKS or _is_letter(char) for char in name)


def _is_letter(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LNM" or category == "So"


def reads_as_dotdot(path: str) -> bool:
    """Whether some other program could read a name in `path` as `..`: encoded, folded, with backslashes or parameters."""
    text = path
    for _ in range(4):
        text = html.unescape(unquote(text))
    text = unicodedata.normalize("NFKC", text).replace("\\", "/")
    return any(name.split(";")[0].strip() == ".." for name in text.split("/"))
