"""A change, stored as a commit: the state of each path before and after a call.

Each commit can be read without the others.

The tree of a commit contains the files before the call (`before/`), the files after it (`after/`), and `change.json`.
The latter stores what git cannot: absence, all mode bits, times, owners, and which content was not stored and why. `git
diff COMMIT:before COMMIT:after` shows what the call changed. The cost of a commit depends on what the call changed, not
on the size of the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._undo.git_objects import Node, Objects
from callgate._undo.path_state import State
from callgate._undo.undo_errors import StoreDamaged

__all__ = ["Change", "ChangeSource", "Gap", "Step", "history", "read_change", "write_change"]

_WHO = "callgate <callgate@localhost>"
_MODES = {"file": 0o100644, "link": 0o120000}


class ChangeSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call that made a change."""

    uid: str
    run: str = ""
    tool: str = ""
    conversation: str = ""
    turn: int = 0


class Step(Struct, frozen=True, kw_only=True):
    """The state of one path before and after a change."""

    path: str
    before: State
    after: State


class Gap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Paths that a change may have affected, but for which it has no steps."""

    why: Literal["ignored", "left_out", "limit", "name", "overlap", "unreadable"]
    """Why there are no steps for the paths.

    With `left_out`, the paths have changed and were not stored. With any other reason, the paths may have changed.
    """
    paths: tuple[str, ...] = ()
    """The first few of the paths."""
    count: int = 0
    blocks: bool = False
    """Whether the gap prevents an undo of the whole change. A gap that does not block is only reported."""


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The effect of one call, undo or redo on files."""

    id: str
    """The change's id, assigned before the call starts."""
    kind: Literal["call", "undo", "redo"] = "call"
    call: ChangeSource
    of: tuple[str, ...] = ()
    """Ids of the changes that this undo or redo applies to."""
    at_ns: int = 0
    steps: tuple[Step, ...] = ()
    gaps: tuple[Gap, ...] = ()
    halfway: tuple[str, ...] = ()
    """The paths that a killed undo or redo left in neither their old nor their wanted state."""
    interrupted: bool = False
    """Whether the end of the call was not observed.

    If so, `after` is the state at recovery, which others may have written.
    """
    commit: str = ""
    """The commit's name. It is not stored in the commit itself."""


_decode = msgspec.json.Decoder(Change).decode


def write_change(objects: Objects, change: Change, *, parent: str) -> str:
    """Write a change as a commit and return the commit's name. The blobs of its steps must be stored already."""
    root: dict[str, Node] = {
        "before": (0o40000, _tree(objects, {step.path: step.before for step in change.steps})),
        "after": (0o40000, _tree(objects, {step.path: step.after for step in change.steps})),
        "change.json": (0o100644, objects.put("blob", msgspec.json.encode(replace(change, commit="")))),
    }
    stamp = f"{_WHO} {change.at_ns // 1_000_000_000} +0000"
    parents = f"parent {parent}\n" if parent else ""
    title = f"{change.kind} {change.call.uid}".replace("\n", " ")
    text = f"tree {objects.tree(root)}\n{parents}author {stamp}\ncommitter {stamp}\n\n{title}\n\n{change.call.tool}\n"
    return objects.put("commit", text.encode("utf-8", "backslashreplace"))


def read_change(objects: Objects, commit: str) -> tuple[Change, str]:
    """Return the change of a commit, and the name of the parent commit (empty for the first).

    Raises:
        StoreDamaged: The commit or its `change.json` is missing or altered.
    """
    head = objects.get(commit, "commit").partition(b"\n\n")[0].decode()
    fields = [line.partition(" ") for line in head.split("\n")]
    tree = next(value for key, _, value in fields if key == "tree")
    parent = next((value for key, _, value in fields if key == "parent"), "")
    try:
        change = _decode(objects.get(objects.entries(tree)["change.json"][1]))
    except (KeyError, msgspec.DecodeError) as error:
        raise StoreDamaged(objects.folder, commit) from error
    return replace(change, commit=commit), parent


def history(objects: Objects) -> Iterator[Change]:
    """Yield every change that can be read, newest first.

    A damaged change is skipped; an undo then treats its effects as changes by somebody else.
    """
    commit, floor = objects.head(), objects.floor()
    while commit:
        try:
            change, parent = read_change(objects, commit)
            yield change
        except StoreDamaged:
            parent = _before(objects.heads(), commit)
        commit = "" if commit == floor else parent


def _before(heads: list[str], commit: str) -> str:
    place = heads.index(commit) if commit in heads else 0
    return heads[place - 1] if place else ""


def _tree(objects: Objects, states: dict[str, State]) -> str:
    """Write git trees for the content of these states and return the root's name.

    States without stored content are in `change.json` only.
    """
    nested: dict[str, object] = {}
    for path, state in states.items():
        if not state.blob:
            continue
        *folders, name = [_plain(part) for part in path.split("/")]
        place = nested
        for folder in folders:
            below = place.setdefault(folder, {})
            if not isinstance(below, dict):
                break
            place = below
        else:
            mode = 0o100755 if state.kind == "file" and state.mode & 0o100 else _MODES[state.kind]
            place.setdefault(name, (mode, state.blob))
    return _write_tree(objects, nested)


def _write_tree(objects: Objects, nested: dict[str, object]) -> str:
    entries: dict[str, Node] = {}
    for name, below in nested.items():
        if isinstance(below, dict):
            entries[name] = (0o40000, _write_tree(objects, below))
        elif isinstance(below, tuple):
            entries[name] = (below[0], below[1])
    return objects.tree(entries)


def _plain(name: str) -> str:
    """Return the name, with a `%` appended if git gives this name a special meaning."""
    return f"{name}%" if name.casefold().startswith((".git", "git~")) else name
