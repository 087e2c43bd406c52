"""One change: what a call found and what it left, as a commit that can be read without any other.

A commit's tree has the paths as they were (`before/`), as they became (`after/`), and `change.json`, which has what git cannot hold:
absence, every mode bit, times, owners, what was not kept and why. So `git diff COMMIT:before COMMIT:after` shows a call's work, and the
cost of a commit follows what the call changed, not how many files there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._undo.objects import Node, Objects
from callgate._undo.path_state import State
from callgate._undo.refusals import StoreDamaged

__all__ = ["Change", "ChangeSource", "Gap", "Step", "history", "read_change", "write_change"]

_WHO = "callgate <callgate@localhost>"
_MODES = {"file": 0o100644, "link": 0o120000}


class ChangeSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose work a change is."""

    uid: str
    run: str = ""
    tool: str = ""
    conversation: str = ""
    turn: int = 0


class Step(Struct, frozen=True, kw_only=True):
    """One path of a change."""

    path: str
    before: State
    after: State


class Gap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a change may hold beyond its steps."""

    why: Literal["ignored", "left_out", "limit", "name", "overlap", "unreadable"]
    """`left_out`: these changed and were not kept; the others may have changed."""
    paths: tuple[str, ...] = ()
    """The first of them."""
    count: int = 0
    blocks: bool = False
    """Whether undo of the whole change is refused; a gap that does not block is only told."""


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one call, undo or redo did to files."""

    id: str
    """Given before the call started."""
    kind: Literal["call", "undo", "redo"] = "call"
    call: ChangeSource
    of: tuple[str, ...] = ()
    """Ids of the changes that were undone or redone."""
    at_ns: int = 0
    steps: tuple[Step, ...] = ()
    gaps: tuple[Gap, ...] = ()
    halfway: tuple[str, ...] = ()
    """Of an undo or redo that was killed, the paths that are neither as they were nor as they should be."""
    interrupted: bool = False
    """Nobody saw the call end: `after` is what was there when it was noticed, whoever made it."""
    commit: str = ""
    """The commit's name; not part of it."""


_decode = msgspec.json.Decoder(Change).decode


def write_change(objects: Objects, change: Change, *, parent: str) -> str:
    """Keep a change as a commit and return its name. The blobs of its steps are there already."""
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
    """A change, and the commit before it (empty for the first).

    Raises:
        StoreDamaged: It cannot be read back as it was written.
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
    """Every change that can be read, the newest first. One that was lost is passed over; what it did shows as somebody else's."""
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
    """The folders that hold these states' content; what has none is left to `change.json`."""
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
    return _written(objects, nested)


def _written(objects: Objects, nested: dict[str, object]) -> str:
    entries: dict[str, Node] = {}
    for name, below in nested.items():
        if isinstance(below, dict):
            entries[name] = (0o40000, _written(objects, below))
        elif isinstance(below, tuple):
            entries[name] = (below[0], below[1])
    return objects.tree(entries)


def _plain(name: str) -> str:
    """A name that git itself gives no meaning."""
    return f"{name}%" if name.casefold().startswith((".git", "git~")) else name
