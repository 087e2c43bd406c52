"""File access confined to one root folder, enforced by the kernel where the system supports it.

All access to a user's files goes through a `Workspace`: by file tools, by commands for their folder, and by undo. This
package is below the tools in the import order, so that no tool receives a path that was not checked here. Knows nothing
of calls, tools or policies; provides facts to policies.
"""

from __future__ import annotations

from callgate._workspace.ignored_files import SKIPPED
from callgate._workspace.listing import DirectoryEntry, Listing, stamp_of
from callgate._workspace.open_beneath import strength
from callgate._workspace.path_errors import PathNotFound, PathRefused
from callgate._workspace.path_text import lexical, quoted_path
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
    "quoted_path",
    "stamp_of",
    "strength",
]
