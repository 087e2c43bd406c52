"""Which runs this engine may write, by the store's own word: leases with an epoch, taken, checked and given back inside its commits.

One holder per run. A lease that ran out by the store's clock may be taken by another, and so may one whose holder shows, by a lock that
goes with its process or its connection, that it is gone. Each taking has a higher epoch, and each commit asks whether another one has come
since: whoever was overtaken finds out there, before anything is kept. Knows no events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from callgate._journal.rows import Value
from callgate.errors import RunHeld, UsageError

__all__ = ["HOLDER", "Ask", "Ground", "Leases", "refuse_odd_lease"]

Ask = Callable[[str, Sequence[Value]], list[tuple[Any, ...]]]
"""Puts one statement to the store, within the present commit."""

_LONGEST_S: Final = 3_600
HOLDER: Final = "SELECT holder, who, expires_ns FROM leases WHERE run = ?"
_COUNT: Final = "UPDATE writer SET epoch = epoch + 1 RETURNING epoch"
_TAKE: Final = """
    INSERT INTO leases (run, epoch, holder, who, expires_ns) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (run) DO UPDATE SET
        epoch = excluded.epoch, holder = excluded.holder, who = excluded.who, expires_ns = excluded.expires_ns
"""


class Ground(Protocol):
    """What leases need from the store they are in."""

    def now_ns(self, ask: Ask) -> int:
        """By the store's clock."""
        ...

    def lives(self, ask: Ask, holder: int) -> bool:
        """Whether a holder may still be there; False only where it is certainly gone."""
        ...


def refuse_odd_lease(lease_s: float) -> None:
    if not isinstance(lease_s, (int, float)) or not 0 < lease_s <= _LONGEST_S:
        raise UsageError(
            f"lease_s={lease_s!r:.80} is no time a run can be held for without a sign of life. Give seconds, up to {_LONGEST_S}."
        )


class Leases:
    """The runs of one opened journal.

    Args:
        holder: Its number among all that ever opened the store; also what the counter of epochs was then.
        who: Names it to others.
    """

    def __init__(self, ground: Ground, holder: int, who: str, lease_s: float) -> None:
        self.epochs: dict[str, int] = {}
        """Of each run that is held."""
        self._ground = ground
        self.holder = holder
        self._who = who
        self._lease_ns = int(lease_s * 1e9)
        self._renew_s = lease_s / 3
        self._counter = holder
        self._renewed = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to show that the holder lives."""
        return bool(self.epochs) and time.monotonic() - self._renewed >= self._renew_s

    def check(self, ask: Ask, counter: int) -> set[str]:
        """Which runs somebody else has taken.

        Args:
            counter: Of epochs, as the store has it now.
        """
        if counter == self._counter:
            return set()
        self._counter = counter
        if not self.epochs:
            return set()
        ours: dict[str, int] = dict(ask("SELECT run, epoch FROM leases WHERE holder = ?", (self.holder,)))
        lost = {run for run, epoch in self.epochs.items() if ours.get(run) != epoch}
        for run in lost:
            del self.epochs[run]
        return lost

    def renew(self, ask: Ask) -> None:
        self._renewed = time.monotonic()
        ask("UPDATE leases SET expires_ns = ? WHERE holder = ?", (self._ground.now_ns(ask) + self._lease_ns, self.holder))

    def take(self, ask: Ask, run: str) -> None:
        """Hold a run from now on.

        Raises:
            RunHeld: Somebody does, and may be alive.
        """
        now = self._ground.now_ns(ask)
        for holder, who, expires_ns in ask(HOLDER, (run,)):
            left_s = (expires_ns - now) / 1e9  # a lease that ends later than any can is from before the machine was started
            if holder != self.holder and 0 < left_s <= _LONGEST_S and self._ground.lives(ask, holder):
                raise RunHeld(
                    f"Run '{run[:80]}' is being worked on by {who}, which holds it for {left_s:.0f} s more unless it renews. Wait until it"
                    " has ended, stop it there, or try again then."
                )
        if not self.epochs:
            self._renewed = time.monotonic()
        ((self._counter,),) = ask(_COUNT, ())
        ask(_TAKE, (run, self._counter, self.holder, self._who, now + self._lease_ns))
        self.epochs[run] = self._counter

    def give_back(self, ask: Ask, runs: Iterable[str]) -> None:
        for run in runs:
            if self.epochs.pop(run, None) is not None:
                ask("DELETE FROM leases WHERE run = ? AND holder = ?", (run, self.holder))

    def give_all_back(self, ask: Ask) -> None:
        self.epochs.clear()
        ask("DELETE FROM leases WHERE holder = ?", (self.holder,))
