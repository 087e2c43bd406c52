"""Delete the objects and packs of a repository that are no longer needed.

Before a pack is deleted, its needed objects are written as single files, so that a kill in between loses nothing. This
module knows commits and the objects that they reference; `checkpoints` decides which commits to keep.
"""

from __future__ import annotations

import os

from callgate._undo.git_objects import BRANCH, HEADS, HELD, PRUNED, Objects
from callgate._undo.git_refs import drop_ref

__all__ = ["keep_only"]


def keep_only(objects: Objects, commits: list[str]) -> None:
    """Delete every object that none of these commits references, directly or through its tree.

    Args:
        commits: The commits that stay, the newest first.
    """
    objects.replace(PRUNED, b"")
    objects.replace(HEADS, "".join(f"{commit}\n" for commit in reversed(commits)).encode(), sync=True)
    reached = set(commits)
    for commit in commits:
        _reach(objects, objects.get(commit, "commit").split(b"\n", 1)[0][5:].decode(), reached)
    objects.replace("shallow", f"{commits[-1]}\n".encode() if commits else b"", sync=True)
    if not commits:
        os.unlink(os.path.join(objects.folder, "shallow"))
        drop_ref(objects.folder, BRANCH)
    drop_ref(objects.folder, HELD)
    _unpack(objects, reached)
    for folder, _, names in os.walk(os.path.join(objects.folder, "objects")):
        for name in names:
            if os.path.basename(folder) + name not in reached:
                os.unlink(os.path.join(folder, name))


def _unpack(objects: Objects, names: set[str]) -> None:
    """Write these objects as single files, and delete all packs."""
    objects.packs.refresh(surely=True)
    for name in list(objects.packs.names()):
        if name in names and not os.path.exists(objects.path(name)) and (found := objects.packs.get(name)):
            objects.put_alone(name, *found)
    objects.flush()
    objects.packs.remove()


def _reach(objects: Objects, tree: str, reached: set[str]) -> None:
    if tree not in reached:
        reached.add(tree)
        for mode, name in objects.entries(tree).values():
            if mode == 0o40000:
                _reach(objects, name, reached)
            reached.add(name)
