"""The changes of leases that the next commit of a journal makes: leases to acquire, to release and to offer to other engines.

Stands between the tasks that ask for changes and the writing thread; the commit decides whether a lease can be acquired. Knows no events.
"""

from __future__ import annotations

from callgate._journal.commit_waiters import LeaseRequests, Waiter
from callgate._journal.lease_acquisition import Leases

__all__ = ["LeaseChanges"]


class LeaseChanges:
    """The changes that wait for the next commit. Used under the queue's lock.

    Args:
        leases: The leases as the last commit left them.
    """

    def __init__(self, leases: Leases) -> None:
        self.requests = LeaseRequests()
        """The tasks that wait for the lease of a run."""
        self._leases = leases
        self._to_release: set[str] = set()
        """Runs whose leases are to be released."""
        self._to_offer: set[str] = set()
        """Runs whose leases others may take as soon as that is stored."""
        self.releasing: frozenset[str] = frozenset()
        """The runs whose leases the current commit releases."""
        self.offering: frozenset[str] = frozenset()
        """The runs whose leases the current commit offers."""

    @property
    def frees_runs(self) -> bool:
        """Whether leases are to be released or offered."""
        return bool(self._to_release or self._to_offer)

    def request(self, run: str) -> Waiter | None:
        """Request the lease of a run, and withdraw its release or offer; return None if it is held and stays so."""
        leaving = (self._to_release, self._to_offer, self.releasing, self.offering, self._leases.offered)
        if run in self._leases.epochs and not any(run in runs for runs in leaving):
            return None
        self._to_release.discard(run)
        self._to_offer.discard(run)
        return self.requests.add(run)

    def release(self, run: str) -> None:
        """Release the lease of a run."""
        self._to_release.add(run)

    def offer(self, run: str) -> bool:
        """Offer the lease of a run to others, if it is held and not to be released; return whether that is so."""
        offered = run in self._leases.epochs and run not in self._to_release
        if offered:
            self._to_offer.add(run)
        return offered

    def begin_commit(self, *, frees_runs: bool) -> None:
        """Begin a commit, which releases and offers the leases in `releasing` and `offering`.

        Args:
            frees_runs: Whether it writes the last pending events of these runs. If not, their leases stay.
        """
        if frees_runs:
            self.releasing, self.offering = frozenset(self._to_release), frozenset(self._to_offer)
            self._to_release.clear()
            self._to_offer.clear()

    def end_commit(self) -> None:
        """Record that the commit has ended."""
        self.releasing = self.offering = frozenset()
