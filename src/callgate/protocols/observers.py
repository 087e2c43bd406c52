"""Protocols of components beside the route: undo stores, followers of the journal, restart handlers. None of them can fail a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from msgspec import Struct

from callgate._secret_redaction import Redactor
from callgate.calls import Scope
from callgate.events import Bus
from callgate.protocols.journals import Journal
from callgate.tools import ToolRegistry

__all__ = ["CapturedChange", "Follower", "RestartHandler", "WriteLog"]


class CapturedChange(Struct, frozen=True, kw_only=True):
    """What an undo store has stored of a call's writes."""

    commit: str
    """The commit in the undo store that has the stored changes."""
    paths: tuple[str, ...]
    """The first of the changed paths."""
    count: int
    """The number of changed paths."""
    unkept: tuple[str, ...] = ()
    """The first of the changed paths that cannot be restored."""
    not_looked_at: int = 0
    """Paths that may have changed and were left out, because the user's ignore files name them."""


class WriteLog(Protocol):
    """Keeps what calls change in a workspace, so that it can be undone. Called in threads; its exceptions fail no call."""

    def leave_out(self, files: Iterable[str]) -> None:
        """Exclude an engine's own files: their changes are not made by calls."""
        ...

    def begin(self, scope: Scope, uid: str, tool: str, keys: tuple[str, ...] | None) -> object:
        """Keep what the call may change; the call starts after this returns.

        Args:
            keys: Paths in the workspace; None for any path in it.
        """
        ...

    def finish(self, opened: object) -> CapturedChange | None:
        """Keep what has changed since `begin`; return None if nothing has. Called once for each `begin`, also if the call failed."""
        ...


class Follower(Protocol):
    """Follows an engine's journal. Its failures affect no call."""

    def follow(self, journal: Journal, bus: Bus, tools: ToolRegistry, redactor: Redactor | None) -> None:
        """Start to follow. The journal has the events, the bus announces new ones, and the tools declare what their calls write.

        Args:
            redactor: Removes secrets from stored values that do not come from the journal.
        """
        ...

    async def close(self) -> None:
        """Stop in bounded time, before the journal is closed. Idempotent."""
        ...


RestartHandler = Callable[[object], Awaitable[bool]]
"""Given a result's data whose `type` begins with `context_restart_`: enrich the context and return True, or leave it and return False.
An exception, or no answer within `Limits.hook_timeout_s`, counts as False: the result goes to the model."""
