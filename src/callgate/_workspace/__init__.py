"""Files confined to one root folder, enforced by the kernel where it can be.

Everything that touches a user's files goes through a `Workspace`: file tools, commands' folders, undo. Stands below tools, because a
path that was not checked here must not reach one. Knows nothing of calls, tools or policies; offers policies facts.
"""

from __future__ import annotations

from callgate._workspace.beneath import strength
from callgate._workspace.ignore import SKIPPED
from callgate._workspace.paths import lexical, shown
from callgate._workspace.protect import is_protected
from callgate._workspace.refusals import PathNotFound, PathRefused
from callgate._workspace.tree import Entry, Listing, stamp_of
from callgate._workspace.workspace import Workspace

__all__ = [
    "SKIPPED",
    "Entry",
    "Listing",
    "PathNotFound",
    "PathRefused",
    "Workspace",
    "is_protected",
    "lexical",
    "shown",
    "stamp_of",
    "strength",
]
