"""Files confined to one root folder, enforced by the kernel where it can be.

Everything that touches a user's files goes through a `Workspace`: file tools, commands' folders, undo. Stands below tools, because a
path that was not checked here must not reach one. Knows nothing of calls, tools or policies; offers policies facts.
"""

from __future__ import annotations

from callgate._workspace.ignored_files import SKIPPED
from callgate._workspace.listing import DirectoryEntry, Listing, stamp_of
from callgate._workspace.open_beneath import strength
from callgate._workspace.path_errors import PathNotFound, PathRefused
from callgate._workspace.path_text import lexical, shown
from callgate._workspace.protected_names import is_protected
from callgate._workspace.workspace import Workspace

__all__ = [
    "SKIPPED",
    "DirectoryEntry",
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
