"""The runs that one opened journal holds: leases are acquired, checked and released inside the commits of a store.

Each run has at most one holder. Another journal may take a lease if the lease has expired by the store's clock, or if its holder is
certainly gone. Each lease gets a higher epoch (a fencing number), and each commit checks whether another lease was granted since the last
one, so a journal that has lost a run notices it before it stores anything. Knows no events and no SQL.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from callgate.errors import RunHeld, UsageError
from callgate.protocols import Lease, LeaseStore

__all__ = ["OFFERED_NS", "Leases", "holder_of", "reader_of", "refuse_odd_lease"]

_LONGEST_S: Final = 3_600
OFFERED_NS: Final = 0
"""The expiry of a lease that any other journal may take, although its holder is alive and reads the messages of the run."""


def refuse_odd_lease(lease_s: float) -> None:
    """Raise `UsageError` unless `lease_s` is a number of seconds above 0 and up to one hour."""
    if not isinstance(lease_s, (int, float)) or not 0 < lease_s <= _LONGEST_S:
        raise UsageError(f"lease_s={lease_s!r:.80} is not a valid lease time. Give seconds, up to {_LONGEST_S}.")


def holder_of(store: LeaseStore, run: str) -> Lease | None:
    """Return the lease that keeps others from a run; None if any journal may take the run."""
    lease = store.get(run)
    if lease is None or lease.expires_ns == OFFERED_NS:
        return None
    # a lease that ends later than is possible is from before the machine was started
    counts = lease.expires_ns is None or 0 < lease.expires_ns - store.now_ns() <= _LONGEST_S * 1e9
    return lease if counts and store.is_alive(lease.holder) else None


def reader_of(store: LeaseStore, run: str) -> Lease | None:
    """Return the lease whose holder reads the messages of a run, even while it offers the lease to others; None if there is none."""
    lease = store.get(run)
    if lease is not None and lease.expires_ns == OFFERED_NS and store.is_alive(lease.holder):
        return lease
    return holder_of(store, run)


class Leases:
    """The leases of one opened journal.

    Args:
        holder: The journal's writer number. It equals the store's last epoch at the time when the journal was
            opened.
        who: The description of this journal that others see.
        lease_s: Seconds until a lease expires unless it is renewed. None: leases never expire; for a store in
            this process, whose holders cannot hang unnoticed.
    """

    def __init__(self, store: LeaseStore, holder: int, who: str, lease_s: float | None) -> None:
        self.epochs: dict[str, int] = {}
        """The epoch of each run that is held."""
        self.offered: set[str] = set()
        """The runs that are held until another journal takes them."""
        self._store = store
        self.holder = holder
        self._who = who
        self._lease_s = lease_s
        self.known_epoch = holder
        """The store's last epoch at the last check."""
        self._renewed = time.monotonic()

    @property
    def renewal_is_due(self) -> bool:
        """Whether the leases must be renewed now."""
        return self._lease_s is not None and bool(self.epochs) and time.monotonic() - self._renewed >= self._lease_s / 3

    def find_lost(self, last_epoch: int) -> set[str]:
        """Return the runs that another journal has taken, and remove them from `epochs`.

        Args:
            last_epoch: The store's last epoch in this commit.
        """
        if last_epoch == self.known_epoch:
            return set()
        self.known_epoch = last_epoch
        if not self.epochs:
            return set()
        ours = self._store.epochs(self.holder)
        lost = {run for run, epoch in self.epochs.items() if ours.get(run) != epoch}
        for run in lost:
            del self.epochs[run]
        self.offered -= lost
        return lost

    def renew(self) -> None:
        """Extend all leases of this journal."""
        self._renewed = time.monotonic()
        self._store.renew(self.holder, self._end_ns())

    def acquire(self, run: str) -> None:
        """Acquire the lease of a run.

        Raises:
            RunHeld: Another journal holds the run and may be alive.
        """
        other = holder_of(self._store, run)
        if other is not None and other.holder != self.holder:
            raise RunHeld(f"Run '{run[:80]}' is being worked on by {other.who}, {self._describe_expiry(other)}")
        if not self.epochs:
            self._renewed = time.monotonic()
        self.known_epoch = self.epochs[run] = self._store.next_epoch()
        self._put(run, self._end_ns())

    def offer(self, runs: Iterable[str]) -> None:
        """Offer the leases of these runs to other journals; until one is taken, it stays with this journal."""
        for run in runs:
            if run in self.epochs and run not in self.offered:
                self.offered.add(run)
                self._put(run, OFFERED_NS)

    def withdraw_offer(self, run: str) -> None:
        """Withdraw the offer of a held run's lease."""
        if run in self.offered:
            self.offered.discard(run)
            self._put(run, self._end_ns())

    def _put(self, run: str, expires_ns: int | None) -> None:
        self._store.put(Lease(run=run, epoch=self.epochs[run], holder=self.holder, who=self._who, expires_ns=expires_ns))

    def release(self, runs: Iterable[str]) -> None:
        for run in runs:
            self.offered.discard(run)
            if self.epochs.pop(run, None) is not None:
                self._store.release(self.holder, run)

    def release_all(self) -> None:
        self.epochs.clear()
        self.offered.clear()
        self._store.release_all(self.holder)

    def _end_ns(self) -> int | None:
        """Return when a lease that is granted or renewed now will expire, by the store's clock.

        None if leases never expire.
        """
        return None if self._lease_s is None else self._store.now_ns() + int(self._lease_s * 1e9)

    def _describe_expiry(self, lease: Lease) -> str:
        if lease.expires_ns is None:
            return "which holds it until it gives it back. Wait until it has ended, or stop it there."
        left_s = (lease.expires_ns - self._store.now_ns()) / 1e9
        return f"which holds it for {left_s:.0f} s more unless it renews. Wait until it has ended, stop it there, or try again then."
