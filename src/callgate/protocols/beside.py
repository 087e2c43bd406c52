"""What stands beside the route: it keeps what calls write, follows the record, takes context in. None of it can fail a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from msgspec import Struct

from callgate._redact import Redactor
from callgate.calls import Scope
from callgate.events import Bus
from callgate.protocols.journals import Journal
from callgate.tools import ToolRegistry

__all__ = ["Follower", "Kept", "RestartHandler", "WriteLog"]


class Kept(Struct, frozen=True, kw_only=True):
    """What was kept of a call's writes."""

    commit: str
    """Where."""
    paths: tuple[str, ...]
    """What changed, the first of it."""
    count: int
    """How many paths changed."""
    unkept: tuple[str, ...] = ()
    """What changed and cannot be put back, the first of it."""
    not_looked_at: int = 0
    """Paths that may have changed and were left out, because the user's own files say so."""


class WriteLog(Protocol):
    """Keeps what calls change in a workspace, so that it can be undone. Called in threads; what it raises fails no call."""

    def leave_out(self, files: Iterable[str]) -> None:
        """These are an engine's own: whatever happens to them is no call's work."""
        ...

    def begin(self, scope: Scope, uid: str, tool: str, keys: tuple[str, ...] | None) -> object:
        """Have what the call may change kept when this returns: the call starts then.

        Args:
            keys: Paths in the workspace; None: anything in it.
        """
        ...

    def finish(self, opened: object) -> Kept | None:
        """Keep what has changed since; None where nothing has. Called once for each `begin`, whatever became of the call."""
        ...


class Follower(Protocol):
    """Follows an engine's record, beside the route: what it makes of it, and whether it can, is nothing to any call."""

    def follow(self, journal: Journal, bus: Bus, tools: ToolRegistry, redactor: Redactor | None) -> None:
        """Begin. The journal has what happened, the bus says that something did, the tools say what their calls write.

        Args:
            redactor: Takes secrets out of whatever is kept that is not from the journal.
        """
        ...

    async def close(self) -> None:
        """End in bounded time, before the journal is closed. Idempotent."""
        ...


RestartHandler = Callable[[object], Awaitable[bool]]
"""Given a result's data whose `type` begins with `context_restart_`: enrich the context and return True, or leave it and return False.
Its error, and its silence for longer than `Limits.hook_timeout_s`, count as False: the result goes to the model."""
