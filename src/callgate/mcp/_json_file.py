"""Read and rewrite a JSON file of settings: bounded, with errors that name the file, atomically, one process at a time.

Comments and trailing commas are read, because the clients that share such files allow them. Does not know what a file
is for.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from callgate._unusable_paths import displayed, read_regular_file, refused_paths, resolved
from callgate._workspace.atomic_replace import SetMetadata, metadata_from, put
from callgate.errors import UsageError

__all__ = ["JsonObject", "has_comments", "parse_json", "read_json_text", "repeated_key", "rewrite_json"]

LARGEST_BYTES: Final = 64 * 1_048_576
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*+")|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)')
_INDENT: Final = re.compile(r'\n([ \t]{1,8})"')
_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")
_TRAILING_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*+")|,(?=\s*[}\]])')


class JsonObject(dict[str, Any]):
    """An object of the file, with the keys that it has more than once."""

    repeated: tuple[str, ...] = ()


def read_json_text(path: Path, use: str) -> str | None:
    """Return the file's text, or None if there is no such file.

    Args:
        use: What the file is for, as in "cannot be used as a list of MCP servers".

    Raises:
        UsageError: It cannot be read, is too large, or is not UTF-8.
    """
    with refused_paths(path, use):
        try:
            raw = read_regular_file(path, LARGEST_BYTES + 1)
        except FileNotFoundError:
            return None
    if len(raw) > LARGEST_BYTES:
        raise UsageError(
            f"{displayed(path)} cannot be used as {use}: it has more than {LARGEST_BYTES // 1_048_576} MiB. Give the right file."
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{displayed(path)} cannot be used as {use}: byte {error.start} is not UTF-8. Save the file as UTF-8, or give another."
        ) from None


def parse_json(text: str, path: Path, use: str) -> JsonObject:
    """Return the object in a file's text.

    Raises:
        UsageError: The text is not JSON, or not an object; the message names line and column.
    """
    try:
        value = json.loads(_remove_comments(text), object_pairs_hook=_to_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{displayed(path)} cannot be used as {use}: line {error.lineno}, column {error.colno}: {error.msg}. Correct the JSON there."
        ) from None
    except ValueError as error:
        raise UsageError(f"{displayed(path)} cannot be used as {use}: {error}. Correct the JSON.") from None
    except RecursionError:
        raise UsageError(f"{displayed(path)} cannot be used as {use}: its lists and objects are nested too deeply. Give another.") from None
    if not isinstance(value, JsonObject):
        raise UsageError(f"{displayed(path)} cannot be used as {use}: it is not a JSON object. Give another file, or correct it.")
    return value


def repeated_key(value: object) -> str:
    """Return a key that an object in the value has more than once, of which a rewritten file keeps only the last; empty if none has."""
    found = [value]
    for one in found:
        if isinstance(one, JsonObject) and one.repeated:
            return one.repeated[0]
        if isinstance(one, (dict, list)):
            found.extend(one.values() if isinstance(one, dict) else one)
    return ""


def has_comments(text: str) -> bool:
    """Return whether the text has comments, which a rewritten file would lose."""
    return any(found[1] is None for found in _COMMENT.finditer(text))


def rewrite_json(path: Path, use: str, change: Callable[[str | None], dict[str, Any]], *, private: bool = False) -> None:
    """Replace the file's content by what `change` returns for its text (None if there is no file).

    The folder is locked meanwhile, so that no change of another process is lost.

    Args:
        private: Whether a new file can be read by its owner only.

    Raises:
        UsageError: The file cannot be read or written.
    """
    path = resolved(path, use)
    with refused_paths(path, use), _lock(path.parent) as folder:
        before = read_json_text(path, use)
        content = _encode(change(before), before or "")
        if len(content) > LARGEST_BYTES:
            raise UsageError(f"{displayed(path)} would have more than {LARGEST_BYTES // 1_048_576} MiB. Remove what is not needed first.")
        mode: SetMetadata = _make_private if private else _as_usual
        with suppress(FileNotFoundError):
            mode = metadata_from(folder, path.name)
        put(folder, path.name, [content], set_metadata=mode)


def _encode(value: dict[str, Any], before: str) -> bytes:
    """Return the value as JSON with the indentation that the file had. A lone surrogate, which UTF-8 does not have, is escaped."""
    found = _INDENT.search(before)
    text = json.dumps(value, indent=found[1] if found else 2, ensure_ascii=False) + "\n"
    return _SURROGATE.sub(_escape_match, text).encode()


def _escape_match(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _make_private(fd: int) -> None:
    os.fchmod(fd, 0o600)


def _as_usual(fd: int) -> None:
    """Leave the mode that a new file has."""


@contextmanager
def _lock(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def _remove_comments(text: str) -> str:
    """Return the text without comments and trailing commas; every other character keeps its place."""
    bare = _COMMENT.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
    return _TRAILING_COMMA.sub(lambda found: found[1] or " ", bare)


def _to_object(pairs: list[tuple[str, Any]]) -> JsonObject:
    made = JsonObject(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.repeated = tuple(name for name in made if names.count(name) > 1)
    return made


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
