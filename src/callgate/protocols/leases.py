"""Leases on runs: which opened journal may write a run, as a store keeps it.

`callgate._journal.lease_acquisition` decides with it who gets a run. Every store of a journal has one: a dictionary, tables in SQLite or
PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

__all__ = ["Lease", "LeaseStore"]


class Lease(Struct, frozen=True, kw_only=True):
    """The right of one opened journal to write a run."""

    run: str
    epoch: int
    """Rises with every lease that the store grants, whatever the run."""
    holder: int
    """The number of the opened journal. No other one has, had or will have it."""
    who: str
    """Names the holder to others, as `process 4711 on build-3`."""
    expires_ns: int | None
    """By the store's clock; None: never."""


class LeaseStore(Protocol):
    """Stores the leases of runs: one lease for each run that an opened journal holds.

    `get`, `now_ns` and `is_alive` may be called at any time. All other methods must be called within a commit
    of the store. Commits of several writers run one after the other. In a store that can fail, a commit is kept
    completely or not at all.
    """

    def now_ns(self) -> int:
        """Return the time by the store's clock, in nanoseconds. Only differences count."""
        ...

    def is_alive(self, holder: int) -> bool:
        """Return whether another holder than the caller may still be there; False only where it is certainly gone."""
        ...

    def last_epoch(self) -> int:
        """Return the epoch of the latest lease, and keep other writers off until the commit is through."""
        ...

    def next_epoch(self) -> int:
        """Return a new epoch, greater than every one before."""
        ...

    def get(self, run: str) -> Lease | None:
        """Return the lease of a run, also where it has expired; None: nobody holds it."""
        ...

    def put(self, lease: Lease) -> None:
        """Grant a lease, in place of any other one of the same run."""
        ...

    def epochs(self, holder: int) -> Mapping[str, int]:
        """Return the epoch of each lease of one holder, by run."""
        ...

    def renew(self, holder: int, expires_ns: int | None) -> None:
        """Let all leases of one holder expire at this time."""
        ...

    def release(self, holder: int, run: str) -> None:
        """Delete the lease of a run if it is this holder's."""
        ...

    def release_all(self, holder: int) -> None:
        """Delete all leases of one holder."""
        ...
