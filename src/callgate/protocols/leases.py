"""Leases on runs, as a store keeps them: which opened journal may write to a run.

`callgate._journal.lease_acquisition` uses them to decide which journal gets a run. Every store of a journal implements
`LeaseStore`: with a dictionary in memory, or with tables in SQLite or PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

__all__ = ["Lease", "LeaseStore"]


class Lease(Struct, frozen=True, kw_only=True):
    """The right of one opened journal to write to a run."""

    run: str
    epoch: int
    """The number of the lease. Each lease that the store grants, for any run, gets a higher one."""
    holder: int
    """The number of the opened journal. It is never used for another one."""
    who: str
    """A description of the holder for others, such as `process 4711 on build-3`."""
    expires_ns: int | None
    """When the lease expires, by the store's clock; None if it never does."""


class LeaseStore(Protocol):
    """Stores the leases of runs: one lease for each run that an opened journal holds.

    `get`, `now_ns` and `is_alive` may be called at any time. All other methods must be called within a commit of the
    store. Commits of several writers run one after the other. In a store that can fail, a commit is stored completely
    or not at all.
    """

    def now_ns(self) -> int:
        """Return the time by the store's clock, in nanoseconds. Only differences are meaningful."""
        ...

    def is_alive(self, holder: int) -> bool:
        """Return whether a holder other than the caller may still be alive; False only if it has certainly ended."""
        ...

    def last_epoch(self) -> int:
        """Return the epoch of the latest lease, and keep other writers out until the commit ends."""
        ...

    def next_epoch(self) -> int:
        """Return a new epoch, greater than all earlier ones."""
        ...

    def get(self, run: str) -> Lease | None:
        """Return the lease of a run, even if it has expired; None if nobody holds the run."""
        ...

    def put(self, lease: Lease) -> None:
        """Grant a lease. It replaces any other lease of the same run."""
        ...

    def epochs(self, holder: int) -> Mapping[str, int]:
        """Return the epochs of all leases of one holder, by run."""
        ...

    def renew(self, holder: int, expires_ns: int | None) -> None:
        """Set the time at which all leases of one holder expire."""
        ...

    def release(self, holder: int, run: str) -> None:
        """Delete the lease of a run if this holder has it."""
        ...

    def release_all(self, holder: int) -> None:
        """Delete all leases of one holder."""
        ...
