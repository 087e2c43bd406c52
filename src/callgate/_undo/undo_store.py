"""Capture the changes of an engine's calls, each in the repository of its workspace.

A store may be shared by several engines. It has one `UndoHistory` for each workspace that calls have named. Its methods
may be called from any thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from callgate._option_checks import by_name
from callgate._undo.change_capture import CallCapture, UndoLimits
from callgate._undo.repository_path import default_folder
from callgate._undo.stored_change import Change, ChangeSource
from callgate._undo.undo_history import UndoHistory
from callgate.protocols import CapturedChange

if TYPE_CHECKING:
    from callgate.calls import Scope

__all__ = ["UndoStore"]

_SHOWN = 50


class UndoStore:
    """Stores what calls change. Pass it to `Engine(undo=...)`.

    Args:
        place: The folder that contains all repositories. Default: `CALLGATE_UNDO`, or `callgate/undo` in the user's
            state folder.
        limits: Limits on what is stored.
        sync: Whether the old content is flushed to disk before a call may write, so that it survives a power cut.
        own: Paths of the host's own files, which snapshots leave out. An engine adds the files that it writes itself
            (journal, blobs, cache).
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
        self._histories: dict[str, UndoHistory] = {}
        self._mutex = threading.Lock()

    @property
    def files(self) -> tuple[str, ...]:
        """See `callgate.protocols.OnDisk`."""
        return (os.path.abspath(default_folder() if self._place is None else self._place),)

    def of(self, workspace: str | os.PathLike[str]) -> UndoHistory:
        """Return the history of one workspace.

        Raises:
            UsageError: There is no such folder.
        """
        path = os.path.realpath(workspace)
        with self._mutex:
            found = self._histories.get(path)
            if found is None:
                found = UndoHistory(path, place=self._place, limits=self._limits, sync=self._sync, own=self._own)
                self._histories[path] = found
            return found

    def leave_out(self, files: Iterable[str]) -> None:
        """See `callgate.protocols.WriteLog`."""
        with self._mutex:
            self._own = tuple(dict.fromkeys((*self._own, *files)))
            for undo_history in self._histories.values():
                undo_history.capture.leave_out(self._own)

    def begin(self, scope: Scope, uid: str, tool: str, keys: tuple[str, ...] | None) -> tuple[UndoHistory, CallCapture]:
        """See `callgate.protocols.WriteLog`."""
        undo_history = self.of(scope.workspace)
        call = ChangeSource(uid=uid, run=scope.run, tool=tool, conversation=scope.conversation, turn=scope.turn)
        return undo_history, undo_history.capture.begin(call, keys)

    def finish(self, opened: object) -> CapturedChange | None:
        """See `callgate.protocols.WriteLog`."""
        if not (
            isinstance(opened, tuple) and len(opened) == 2 and isinstance(opened[0], UndoHistory) and isinstance(opened[1], CallCapture)
        ):
            raise TypeError("finish takes what begin gave")
        change = opened[0].capture.finish(opened[1])
        return None if change is None else _describe_capture(change)


def _describe_capture(change: Change) -> CapturedChange:
    unkept = [step.path for step in change.steps if step.before.why or step.after.why]
    unkept += [path for gap in change.gaps if gap.blocks or gap.why == "left_out" for path in gap.paths]
    return CapturedChange(
        commit=change.commit,
        paths=tuple(step.path for step in change.steps[:_SHOWN]),
        count=len(change.steps),
        unkept=tuple(unkept[:_SHOWN]),
        not_looked_at=sum(gap.count for gap in change.gaps if not gap.blocks and gap.why != "left_out"),
    )
