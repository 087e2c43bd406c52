"""Show changes as a patch: `patch -p0` converts the earlier state to the later one, `patch -p0 -R` does the reverse.

The format is git's extended diff format without path prefixes, because plain unified diffs cannot describe a new empty
file, a deleted file, a link, or a changed mode. Changes that a patch cannot express are shown as lines that begin with
`#`, which `patch` ignores. These are folders, binary content, and paths that are a folder in one state and a file in
the other.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from callgate._undo.git_objects import Objects
from callgate._undo.path_state import ABSENT, State, describe_state
from callgate._undo.undo_errors import StoreDamaged

__all__ = ["UndoDiff", "difference", "differences"]

_CONTEXT = 3
_MOST_COMPARED = 1_000_000
"""The largest product of the numbers of old and new lines for which the smallest difference is computed."""
_TYPES = {"file": 0o100000, "link": 0o120000}
_Edit = tuple[str, int, int, int, int]
"""One edit, in the form that `difflib` uses.

`equal`, `replace`, `delete` or `insert`; then start and end in the old lines; then start and end in the new lines.
"""
_NO_BLOB = "0" * 40
_ESCAPES = {ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r", ord('"'): '\\"', ord("\\"): "\\\\"}


class UndoDiff(Struct, frozen=True, kw_only=True):
    """The difference of one path."""

    path: str
    text: str
    """A patch from the state before the calls to the state after them. Ends with a newline."""


def differences(objects: Objects, moves: Iterable[tuple[str, State, State]]) -> list[UndoDiff]:
    """Return the differences of these paths, each given as path, state before and state after."""
    moves = list(moves)
    swapped = {
        path
        for path, before, after in moves
        if "directory" in (before.kind, after.kind) and not {before.kind, after.kind}.isdisjoint(_TYPES)
    }
    return [difference(objects, *move, commented=_is_within(move[0], swapped)) for move in moves]


def _is_within(path: str, roots: set[str]) -> bool:
    """Return whether a path is one of `roots` or is below one."""
    return bool(roots) and any(path[:end] in roots for end in (*_slashes(path), len(path)))


def _slashes(path: str) -> Iterator[int]:
    return (place for place, char in enumerate(path) if char == "/")


def difference(objects: Objects, path: str, before: State, after: State, *, commented: bool = False) -> UndoDiff:
    """Return the difference of one path.

    Args:
        commented: Whether every line begins with `#`, so that `patch` ignores it.
    """
    name, old, new = _quote_path(path), _in_a_patch(before), _in_a_patch(after)
    if old.kind != new.kind and ABSENT not in (old, new):
        lines = [*_lines(objects, name, old, ABSENT), *_lines(objects, name, ABSENT, new)]
    else:
        lines = [*_lines(objects, name, old, new)]
    if not _is_said(before, after):
        lines.append(f"# {name}: {describe_state(before)} -> {describe_state(after)}\n")
    if commented:
        lines = [line if line.startswith("# ") else f"# {line}" for part in lines for line in _split(part)]
    return UndoDiff(path=path, text="".join(lines))


def _in_a_patch(state: State) -> State:
    return state if state.kind in _TYPES else ABSENT


def _is_said(before: State, after: State) -> bool:
    """Return whether a patch can express the whole difference of these two states."""
    whole = _in_a_patch(before) == before and _in_a_patch(after) == after
    return whole and before.attributes == after.attributes and not before.why and not after.why


def _lines(objects: Objects, name: str, before: State, after: State) -> Iterator[str]:
    if before == after:
        return
    old, new = _text(objects, before), _text(objects, after)
    if before.blob != after.blob and (old is None or new is None):
        yield f"# {name}: the content is binary or not kept, and not in this patch: {describe_state(before)} -> {describe_state(after)}\n"
        return
    yield f"diff --git {name} {name}\n"
    yield from _modes(before, after)
    if before.blob != after.blob:
        mode = f" {_TYPES[after.kind] | after.mode:o}" if (before.kind, before.mode) == (after.kind, after.mode) else ""
        yield f"index {before.blob or _NO_BLOB}..{after.blob or _NO_BLOB}{mode}\n"
    old_name, new_name = (name if state.kind != "absent" else "/dev/null" for state in (before, after))
    if old is not None and new is not None and old != new:
        yield f"--- {old_name}\n+++ {new_name}\n"
        yield from _hunks(_split(old), _split(new))


def _modes(before: State, after: State) -> Iterator[str]:
    if before.kind == "absent":
        yield f"new file mode {_TYPES[after.kind] | after.mode:o}\n"
    elif after.kind == "absent":
        yield f"deleted file mode {_TYPES[before.kind] | before.mode:o}\n"
    elif before.mode != after.mode:
        yield f"old mode {_TYPES[before.kind] | before.mode:o}\nnew mode {_TYPES[after.kind] | after.mode:o}\n"


def _text(objects: Objects, state: State) -> str | None:
    """Return the content as text; None if it is not text or was not stored."""
    if state.why:
        return None
    try:
        text = objects.get(state.blob).decode() if state.blob else ""
    except (StoreDamaged, UnicodeDecodeError):
        return None
    return None if "\0" in text else text


def _split(text: str) -> list[str]:
    """Return the lines with their newlines. The last line may have none."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    for group in _group_hunks(_opcodes(old, new)):
        yield f"@@ -{_range(group[0][1], group[-1][2])} +{_range(group[0][3], group[-1][4])} @@\n"
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                yield from _mark_lines(" ", old[old_from:old_to])
            else:
                yield from _mark_lines("-", old[old_from:old_to])
                yield from _mark_lines("+", new[new_from:new_to])


def _group_hunks(edits: Sequence[_Edit]) -> Iterator[list[_Edit]]:
    """Yield the edits of each hunk with their context lines.

    Equal lines separate two hunks if there are more of them than twice the number of context lines.
    """
    group: list[_Edit] = []
    for place, (tag, old_from, old_to, new_from, new_to) in enumerate(edits):
        if tag != "equal":
            group.append((tag, old_from, old_to, new_from, new_to))
            continue
        before = min(_CONTEXT, old_to - old_from) if place < len(edits) - 1 else 0
        after = min(_CONTEXT, old_to - old_from) if group else 0
        if group and before and old_to - old_from <= 2 * _CONTEXT:
            group.append((tag, old_from, old_to, new_from, new_to))
            continue
        if group:
            yield [*group, (tag, old_from, old_from + after, new_from, new_from + after)]
        group = [(tag, old_to - before, old_to, new_to - before, new_to)] if before else []
    if group:
        yield group


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[_Edit]:
    """Return the edits.

    Equal lines at both ends are skipped first. If the rest is too large (`_MOST_COMPARED`), it becomes one `replace` and not the smallest
    difference.
    """
    shorter = min(len(old), len(new))
    head = next((place for place in range(shorter) if old[place] != new[place]), shorter)
    tail = next((place for place in range(shorter - head) if old[-1 - place] != new[-1 - place]), shorter - head)
    old_end, new_end = len(old) - tail, len(new) - tail
    if (old_end - head) * (new_end - head) > _MOST_COMPARED:
        middle: list[_Edit] = [("replace", head, old_end, head, new_end)]
    else:
        found = difflib.SequenceMatcher(None, old[head:old_end], new[head:new_end], autojunk=False).get_opcodes()
        middle = [(tag, head + one, head + two, head + three, head + four) for tag, one, two, three, four in found]
    first: list[_Edit] = [("equal", 0, head, 0, head)] if head else []
    return [*first, *middle, *([("equal", old_end, len(old), new_end, len(new))] if tail else [])]


def _range(start: int, stop: int) -> str:
    return f"{start + 1},{stop - start}" if stop > start else f"{start},0"


def _mark_lines(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _quote_path(path: str) -> str:
    """Return a path in the form that `patch` and `git apply` read.

    The path is quoted as in C if it contains a space, a quote, a backslash or a character that is not printable.
    """
    if path.isprintable() and not set(path) & set(' "\\'):
        return path
    escaped = "".join(
        _ESCAPES.get(ord(char)) or (char if char.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))) for char in path
    )
    return f'"{escaped}"'
