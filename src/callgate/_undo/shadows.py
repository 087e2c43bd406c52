"""The engine's side: whatever a call writes is kept in the repository of its workspace.

One per engine, or shared by several: it has a `Shadow` for each workspace that calls named. Called from threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from callgate._options import by_name
from callgate._undo.changes import Call, Change
from callgate._undo.keeping import Open, UndoLimits
from callgate._undo.shadow import Shadow
from callgate.protocols import Kept

if TYPE_CHECKING:
    from callgate.calls import Scope

__all__ = ["Shadows"]

_SHOWN = 50


class Shadows:
    """Keeps what calls change; hand it to `Engine(undo=...)`.

    Args:
        place: The folder of all repositories; None: `CALLGATE_UNDO`, or `callgate/undo` in the user's state folder.
        limits: How much is kept.
        sync: Whether old content survives a power cut before a call may write.
        own: Paths that are the host's own, and that no snapshot looks at. What an engine writes itself (journal, blobs, cache) it says.
    """

    @by_name
    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        limits: UndoLimits | None = None,
        sync: bool = True,
        own: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._place = place
        self._limits = limits
        self._sync = sync
        self._own = tuple(os.fspath(path) for path in own)
        self._shadows: dict[str, Shadow] = {}
        self._mutex = threading.Lock()

    def of(self, workspace: str | os.PathLike[str]) -> Shadow:
        """The kept changes of one workspace.

        Raises:
            UsageError: There is no such folder.
        """
        path = os.path.realpath(workspace)
        with self._mutex:
            found = self._shadows.get(path)
            if found is None:
                found = Shadow(path, place=self._place, limits=self._limits, sync=self._sync, own=self._own)
                self._shadows[path] = found
            return found

    def leave_out(self, files: Iterable[str]) -> None:
        """See `callgate.protocols.WriteLog`."""
        with self._mutex:
            self._own = tuple(dict.fromkeys((*self._own, *files)))
            for shadow in self._shadows.values():
                shadow.keeping.leave_out(self._own)

    def begin(self, scope: Scope, uid: str, tool: str, keys: tuple[str, ...] | None) -> tuple[Shadow, Open]:
        """See `callgate.protocols.WriteLog`."""
        shadow = self.of(scope.workspace)
        call = Call(uid=uid, run=scope.run, tool=tool, conversation=scope.conversation, turn=scope.turn)
        return shadow, shadow.keeping.begin(call, keys)

    def finish(self, opened: object) -> Kept | None:
        """See `callgate.protocols.WriteLog`."""
        if not (isinstance(opened, tuple) and len(opened) == 2 and isinstance(opened[0], Shadow) and isinstance(opened[1], Open)):
            raise TypeError("finish takes what begin gave")
        change = opened[0].keeping.finish(opened[1])
        return None if change is None else _kept(change)


def _kept(change: Change) -> Kept:
    unkept = [step.path for step in change.steps if step.before.why or step.after.why]
    unkept += [path for gap in change.gaps if gap.blocks or gap.why == "left_out" for path in gap.paths]
    return Kept(
        commit=change.commit,
        paths=tuple(step.path for step in change.steps[:_SHOWN]),
        count=len(change.steps),
        unkept=tuple(unkept[:_SHOWN]),
        not_looked_at=sum(gap.count for gap in change.gaps if not gap.blocks and gap.why != "left_out"),
    )
