"""Leases and inbox in SQL tables, the same for SQLite and PostgreSQL.

Used by `lease_acquisition` and `delivered_messages`, which decide. Statements have `?` as placeholders; a store runs them through an `Ask`
function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from callgate._journal.event_rows import Value
from callgate.protocols import InboxMessage, Lease

__all__ = ["Ask", "LeaseClock", "SqlInbox", "SqlLeases"]

Ask = Callable[[str, Sequence[Value]], list[tuple[Any, ...]]]
"""Run one statement within the current commit, and return its rows."""

_GET: Final = "SELECT epoch, holder, who, expires_ns FROM leases WHERE run = ?"
_COUNT: Final = "UPDATE writer SET epoch = epoch + 1 RETURNING epoch"
_PUT: Final = """
    INSERT INTO leases (run, epoch, holder, who, expires_ns) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (run) DO UPDATE SET
        epoch = excluded.epoch, holder = excluded.holder, who = excluded.who, expires_ns = excluded.expires_ns
"""
_NEVER_NS: Final = (1 << 63) - 1
"""The stored expiry of a lease that does not expire, because the column does not allow NULL."""

_ADD: Final = "INSERT INTO inbox (run, kind, target, actor, reason, at_ns, folded) VALUES (?, ?, ?, ?, ?, ?, 0) RETURNING id"
_POSITION: Final = "SELECT folded FROM inbox WHERE id = ?"
_PENDING: Final = """
    SELECT inbox.id, inbox.run, inbox.kind, inbox.target, inbox.actor, inbox.reason, inbox.at_ns
    FROM inbox JOIN leases ON leases.run = inbox.run
    WHERE inbox.folded = 0 AND leases.holder = ? ORDER BY CASE inbox.kind WHEN 'kill' THEN 0 WHEN 'stop' THEN 1 ELSE 2 END, inbox.id LIMIT ?
"""
_UNRECORDED: Final = """
    SELECT id, run, kind, target, actor, reason, at_ns FROM inbox WHERE run = ? AND folded = 0 ORDER BY id
"""
_QUESTION: Final = "SELECT coalesce(max(position), 0) FROM events WHERE call = ? AND call <> '' AND kind = 'call.suspended'"
_LATEST: Final = "SELECT coalesce(max(position), 0) FROM events WHERE run = ?"
_RECORDED: Final = "UPDATE inbox SET folded = ? WHERE id = ? AND folded = 0"


class LeaseClock(Protocol):
    """The time and the liveness of holders, from the machine or the server that has the tables."""

    def now_ns(self) -> int:
        """See `LeaseStore.now_ns`."""
        ...

    def is_alive(self, holder: int) -> bool:
        """See `LeaseStore.is_alive`."""
        ...


class SqlLeases:
    """A `LeaseStore` in the tables `leases` and `writer`.

    Args:
        counter: The statement that reads the last epoch. It may also lock the row, to keep other writers out until the commit ends.
    """

    def __init__(self, ask: Ask, clock: LeaseClock, *, counter: str = "SELECT epoch FROM writer") -> None:
        self._ask = ask
        self._counter = counter
        self.now_ns = clock.now_ns
        self.is_alive = clock.is_alive

    def last_epoch(self) -> int:
        return int(self._ask(self._counter, ())[0][0])

    def next_epoch(self) -> int:
        return int(self._ask(_COUNT, ())[0][0])

    def get(self, run: str) -> Lease | None:
        rows = self._ask(_GET, (run,))
        if not rows:
            return None
        epoch, holder, who, expires_ns = rows[0]
        return Lease(run=run, epoch=epoch, holder=holder, who=who, expires_ns=None if expires_ns == _NEVER_NS else expires_ns)

    def put(self, lease: Lease) -> None:
        self._ask(_PUT, (lease.run, lease.epoch, lease.holder, lease.who, _expiry_column(lease.expires_ns)))

    def epochs(self, holder: int) -> dict[str, int]:
        return dict(self._ask("SELECT run, epoch FROM leases WHERE holder = ?", (holder,)))

    def renew(self, holder: int, expires_ns: int | None) -> None:
        self._ask("UPDATE leases SET expires_ns = ? WHERE holder = ? AND expires_ns <> 0", (_expiry_column(expires_ns), holder))

    def release(self, holder: int, run: str) -> None:
        self._ask("DELETE FROM leases WHERE run = ? AND holder = ?", (run, holder))

    def release_all(self, holder: int) -> None:
        self._ask("DELETE FROM leases WHERE holder = ?", (holder,))


def _expiry_column(expires_ns: int | None) -> int:
    return _NEVER_NS if expires_ns is None else expires_ns


class SqlInbox:
    """An `Inbox` in the table `inbox`, beside `events` and `leases`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def add(self, *, run: str, kind: str, target: str, actor: str, reason: str, at_ns: int) -> int:
        return int(self._ask(_ADD, (run, kind, target, actor, reason, at_ns))[0][0])

    def pending(self, holder: int, *, known: Collection[int] = (), limit: int = 1_024) -> list[InboxMessage]:
        rows = [row for row in self._ask(_PENDING, (holder, limit + len(known))) if row[0] not in known]
        latest: dict[str, int] = {}
        return [self._message(row, latest) for row in rows[:limit]]

    def unrecorded(self, run: str) -> list[InboxMessage]:
        fields = ("id", "run", "kind", "target", "actor", "reason", "at_ns")
        return [InboxMessage(**dict(zip(fields, row, strict=True))) for row in self._ask(_UNRECORDED, (run,))]

    def position(self, id: int) -> int:
        rows = self._ask(_POSITION, (id,))
        return int(rows[0][0]) if rows else 0

    def mark_recorded(self, id: int, position: int) -> None:
        self._ask(_RECORDED, (position, id))

    def _message(self, row: tuple[Any, ...], latest: dict[str, int]) -> InboxMessage:
        id, run, kind, target, actor, reason, at_ns = row
        if kind in ("approve", "deny"):
            ((cause,),) = self._ask(_QUESTION, (target,))
        elif (cause := latest.get(run)) is None:
            ((cause,),) = self._ask(_LATEST, (run,))
            latest[run] = cause
        return InboxMessage(id=id, run=run, kind=kind, target=target, actor=actor, reason=reason, at_ns=at_ns, cause=int(cause))
