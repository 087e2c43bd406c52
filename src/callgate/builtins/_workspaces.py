"""Find the workspace of a call, and keep workspaces open between calls."""

from __future__ import annotations

import threading
from collections import OrderedDict

from callgate._workspace import Workspace, lexical
from callgate.builtins._tool_failures import CannotDo

__all__ = ["Workspaces", "folder_key"]

_HELD = 64


class Workspaces:
    """Open workspaces, by the root that a scope names.

    The first call that names a root opens it. It then stays the same folder, even if another folder gets its name
    later; only if the folder is deleted is the name opened again. At most 64 roots are kept open. Above that, the least
    recently used one is closed.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, tuple[str, ...]], Workspace] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, root: str, own: tuple[str, ...] = ()) -> Workspace:
        """Return the workspace at this root.

        Args:
            own: Files of the engine, which tools may not use.

        Raises:
            CannotDo: The scope has no workspace.
        """
        if not root:
            raise CannotDo(
                "This run has no workspace, so there are no files to use. Go on without files, or say that a workspace is needed."
            )
        with self._lock:
            found = self._held.get((root, own))
            if found is None or found.deleted:
                found = self._held[root, own] = Workspace(root, own=own)
            self._held.move_to_end((root, own))
            if len(self._held) > _HELD:
                self._held.popitem(last=False)  # closed when its last call ends
            return found


def folder_key(pattern: object) -> str:
    """Return the resource key of the deepest folder that contains every path a glob can match."""
    name = lexical(pattern) if isinstance(pattern, str) else None
    names = (name or "").split("/")[:-1]
    fixed: list[str] = []
    for part in names:
        if any(char in part for char in "*?["):
            break
        fixed.append(part)
    return f"file:{'/'.join(fixed)}"
