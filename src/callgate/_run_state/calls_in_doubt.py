"""The calls of one run with an effect and an unknown outcome, and those that happened according to an operator.

A call is found by its tool and its final arguments, because an identical call must not start while the outcome is unknown. A human who
knows of the first may allow a second one; if the outcome of that is unknown, too, both have to be settled. Writes no events and asks no
questions.
"""

from __future__ import annotations

from msgspec import Struct

from callgate._run_state.event_bodies import arguments_hash

__all__ = ["CallsInDoubt", "ConfirmedCall", "Doubt", "Fact", "Origin", "UncertainCall"]

Fact = tuple[str, str]
"""A tool, and the hash of final arguments."""


class Origin(Struct, frozen=True, kw_only=True):
    """The engine and the worker that ran a call, according to the record."""

    writer: str
    """The engine that started it, by its name in the journal; see `callgate.protocols.NamesWriters`."""
    runner: str
    worker: str = ""
    """The worker process that accepted it, if the runner names one."""


class UncertainCall(Struct, frozen=True, kw_only=True):
    """A call with an unknown outcome."""

    uid: str
    key: str
    """The key that identifies the call in its run."""
    tool_key: str
    """The idempotency key that the tool got."""
    origin: Origin | None = None
    """The recorded origin of the call; None: it ran in this engine."""
    gone: bool = True
    """For a call of this engine: whether its code had ended, as far as its runner knows."""


class ConfirmedCall(Struct, frozen=True, kw_only=True):
    """A call that took effect according to an operator."""

    uid: str
    by: str


Doubt = tuple[Fact, UncertainCall]
"""The tool and arguments of a call with an unknown outcome, and the call."""


class CallsInDoubt:
    """The calls in doubt of one run."""

    def __init__(self) -> None:
        self.latest: dict[Fact, UncertainCall] = {}
        """The latest call in doubt of each tool with certain final arguments."""
        self._earlier: dict[str, Doubt] = {}
        """The ones before, by uid."""
        self.confirmed: dict[Fact, ConfirmedCall] = {}
        """Calls that happened according to an operator, until the result of one identical call reports it."""

    def __bool__(self) -> bool:
        """Whether the outcome of a call is unknown."""
        return bool(self.latest or self._earlier)

    def __contains__(self, uid: str) -> bool:
        return uid in self._earlier or any(doubt.uid == uid for doubt in self.latest.values())

    def add(self, fact: Fact, doubt: UncertainCall) -> None:
        before = self.latest.get(fact)
        if before is not None and before.uid != doubt.uid:
            self._earlier[before.uid] = fact, before
        self.latest[fact] = doubt

    def find(self, tool: str, encoded: bytes) -> UncertainCall | None:
        """Return the latest call in doubt of a tool with these final arguments, or None."""
        return self.latest.get((tool, arguments_hash(encoded))) if self.latest else None

    def find_confirmed(self, tool: str, encoded: bytes) -> ConfirmedCall | None:
        """Return the call of a tool with these final arguments that happened according to an operator, or None; see `confirmed`."""
        return self.confirmed.get((tool, arguments_hash(encoded))) if self.confirmed else None

    def by_uid(self) -> dict[str, UncertainCall]:
        """Return all calls in doubt, by uid."""
        return {**{uid: doubt for uid, (_, doubt) in self._earlier.items()}, **{doubt.uid: doubt for doubt in self.latest.values()}}

    def remove(self, uid: str) -> Doubt | None:
        """Remove the call with this uid because its outcome is known, and return it; None if it is not in doubt.

        If it was the latest, the one before it is the latest again.
        """
        if uid in self._earlier:
            return self._earlier.pop(uid)
        fact = next((fact for fact, doubt in self.latest.items() if doubt.uid == uid), None)
        if fact is None:
            return None
        removed = self.latest.pop(fact)
        before = next((one for one in reversed(self._earlier) if self._earlier[one][0] == fact), None)
        if before is not None:
            self.latest[fact] = self._earlier.pop(before)[1]
        return fact, removed

    def confirm(self, uid: str, by: str) -> Doubt | None:
        """Remove the call as `remove` does, because it happened according to an operator. The result of the next identical call reports it,
        unless a later one is in doubt.
        """
        was_latest, found = uid not in self._earlier, self.remove(uid)
        if found is not None and was_latest:
            self.confirmed[found[0]] = ConfirmedCall(uid=uid, by=by)
        return found

    def forget_confirmed(self, uid: str) -> None:
        """Forget that a call happened, because the result of an identical call has reported it."""
        self.confirmed = {fact: one for fact, one in self.confirmed.items() if one.uid != uid}
