"""Paths as text: check their form, find the part below a root, and quote them for messages. Pure.

The text of a path is used only for early refusals and resource keys. The kernel decides whether a path stays inside the
root (`open_beneath`): nothing here resolves `..` or links.
"""

from __future__ import annotations

import html
import os
import unicodedata
from urllib.parse import unquote

__all__ = ["MAX_NAME", "MAX_PATH", "UNUSABLE", "below", "fault", "is_plain", "lexical", "quoted_path", "reads_as_dotdot", "split"]

MAX_NAME = 255
MAX_PATH = 4095
UNUSABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories that no path may contain, because they break lines, logs or encodings."""
_ESCAPED = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})
_PLAIN_MARKS = frozenset(" ._-+@()[],=#!'")
_SHOWN_CHARS = 160


def quoted_path(path: str) -> str:
    """Return `path` in quotes for messages.

    Control and format characters are escaped, and long paths are cut in the middle.
    """
    half = _SHOWN_CHARS // 2
    cut = path if len(path) <= _SHOWN_CHARS else f"{path[:half]}…{path[-half:]}"
    return "'" + "".join(_escape(char) for char in cut) + "'"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if unicodedata.category(char) in _ESCAPED else char


def fault(path: str) -> str | None:
    """Return `name` or `too_long` if this text cannot be a path. Return None if it can."""
    if not path or any(unicodedata.category(char) in UNUSABLE for char in path):
        return "name"
    if len(os.fsencode(path)) > MAX_PATH or any(len(os.fsencode(name)) > MAX_NAME for name in path.split("/")):
        return "too_long"
    return None


def below(path: str, roots: tuple[str, ...]) -> str | None:
    """Return the part of `path` below the root, or None if it is outside. A relative path is returned unchanged.

    Whole names are compared, so that a sibling of the root whose name begins like the root's is outside.
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
    """Return the parent (`.` if none) and the last name of a relative path.

    The name is empty if it is `.`, `..` or missing.
    """
    parent, _, name = path.rpartition("/")
    return parent or ".", "" if name in ("", ".", "..") else name


def lexical(path: str) -> str | None:
    """Return the canonical form of a relative path (`a/b`, empty for the root).

    Return None if the text alone does not determine it: if it contains `..` or is absolute.
    """
    names = path.split("/")
    if path.startswith("/") or ".." in names:
        return None
    return "/".join(name for name in names if name not in ("", "."))


def is_plain(name: str) -> bool:
    """Return whether a missing folder with this name may be created for a new file.

    Other programs expand names such as `~`, `$HOME`, `file:`, `C:` or `....`. Creating a folder of such a name would
    hide a mistake.
    """
    return name.strip(". ") != "" and all(char in _PLAIN_MARKS or _is_letter(char) for char in name)


def _is_letter(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LNM" or category == "So"


def reads_as_dotdot(path: str) -> bool:
    """Return whether another program could read a name in `path` as `..`.

    Detects percent-encoding, HTML entities, Unicode compatibility forms, backslashes and parameters after `;`.
    """
    text = path
    for _ in range(4):
        text = html.unescape(unquote(text))
    text = unicodedata.normalize("NFKC", text).replace("\\", "/")
    return any(name.split(";")[0].strip() == ".." for name in text.split("/"))
