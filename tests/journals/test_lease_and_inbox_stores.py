"""What every store of leases and messages keeps, whatever it is made of: the contracts of `LeaseStore` and `Inbox`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from msgspec import Struct

from callgate import MemoryJournal, PostgresJournal, SqliteJournal
from callgate.events import Draft
from callgate.protocols import Inbox, InboxMessage, Journal, Lease, LeaseStore

ME, OTHER = 1_001, 1_002
"""Numbers that no journal of these tests has."""


class Seam(Struct):
    """A store and a journal over it."""

    leases: LeaseStore
    inbox: Inbox
    commit: Callable[[], AbstractContextManager[object]]
    journal: Journal


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def seam(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Seam]:
    if request.param == "memory":
        memory = MemoryJournal(shared=True)
        yield Seam(memory.store.leases, memory.store.inbox, memory.store.inbox_commit, memory)
        return
    opened: SqliteJournal | PostgresJournal
    opened = SqliteJournal(tmp_path / "journal.db") if request.param == "sqlite" else PostgresJournal(request.getfixturevalue("database"))
    store = opened._commits._writing._store
    yield Seam(store.leases, store.inbox, store.commit, opened)
    await opened.close()


def lease(run: str = "order", *, epoch: int = 7, holder: int = ME, who: str = "process 1", expires_ns: int | None = 5) -> Lease:
    return Lease(run=run, epoch=epoch, holder=holder, who=who, expires_ns=expires_ns)


# Leases


@pytest.mark.parametrize("expires_ns", [None, 1, 9_000_000_000_000_000_000])
def test_a_lease_is_found_as_it_was_granted(seam: Seam, expires_ns: int | None) -> None:
    assert seam.leases.get("order") is None
    granted = lease(expires_ns=expires_ns, who="process 1 on \u00fc")
    with seam.commit():
        seam.leases.put(granted)
    assert seam.leases.get("order") == granted
    assert seam.leases.get("other") is None


def test_a_run_has_one_lease(seam: Seam) -> None:
    with seam.commit():
        seam.leases.put(lease(epoch=7))
        seam.leases.put(lease(epoch=8, holder=OTHER))
    assert seam.leases.get("order") == lease(epoch=8, holder=OTHER)
    assert (dict(seam.leases.epochs(ME)), dict(seam.leases.epochs(OTHER))) == ({}, {"order": 8})


def test_epochs_rise_and_the_last_one_is_known(seam: Seam) -> None:
    with seam.commit():
        before = seam.leases.last_epoch()
        epochs = [seam.leases.next_epoch() for _ in range(3)]
        assert epochs == sorted(set(epochs))
        assert epochs[0] > before
        assert seam.leases.last_epoch() == epochs[-1]


def test_all_leases_of_a_holder_are_renewed_and_no_other(seam: Seam) -> None:
    with seam.commit():
        for run in ("a", "b"):
            seam.leases.put(lease(run))
        seam.leases.put(lease("c", holder=OTHER))
        seam.leases.renew(ME, 99)
    ends = {run: found.expires_ns for run in "abc" if (found := seam.leases.get(run))}
    assert ends == {"a": 99, "b": 99, "c": 5}


def test_a_lease_is_released_by_its_holder_alone(seam: Seam) -> None:
    with seam.commit():
        for run in ("a", "b", "c"):
            seam.leases.put(lease(run, holder=OTHER if run == "c" else ME))
        seam.leases.release(OTHER, "a")
        seam.leases.release(ME, "b")
        seam.leases.release(ME, "unknown")
    assert [run for run in "abc" if seam.leases.get(run)] == ["a", "c"]
    with seam.commit():
        seam.leases.release_all(ME)
    assert [run for run in "abc" if seam.leases.get(run)] == ["c"]


def test_time_goes_on_and_nobody_is_alive_who_never_was(seam: Seam) -> None:
    with seam.commit():
        before = seam.leases.now_ns()
        assert seam.leases.now_ns() >= before
        assert not seam.leases.is_alive(ME)


# Inbox


def added(seam: Seam, *kinds: str, run: str = "order") -> list[int]:
    with seam.commit():
        return [seam.inbox.add(run=run, kind=kind, target=run, actor="ann", reason="why", at_ns=n) for n, kind in enumerate(kinds)]


def hold(seam: Seam, *runs: str, holder: int = ME) -> None:
    with seam.commit():
        for run in runs:
            seam.leases.put(lease(run, holder=holder))


def test_a_message_waits_for_whoever_holds_its_run(seam: Seam) -> None:
    (id,) = added(seam, "stop")
    assert seam.inbox.pending(ME) == []
    hold(seam, "order")
    hold(seam, "other", holder=OTHER)
    assert seam.inbox.pending(OTHER) == []
    assert seam.inbox.pending(ME) == [
        InboxMessage(id=id, run="order", kind="stop", target="order", actor="ann", reason="why", at_ns=0, cause=0)
    ]


def test_a_kill_comes_first_and_then_a_stop_and_then_what_came_first(seam: Seam) -> None:
    ids = dict(zip(("approve", "stop", "deny", "kill"), added(seam, "approve", "stop", "deny", "kill"), strict=True))
    hold(seam, "order")
    assert [message.kind for message in seam.inbox.pending(ME)] == ["kill", "stop", "approve", "deny"]
    assert [message.kind for message in seam.inbox.pending(ME, limit=2)] == ["kill", "stop"]
    assert [message.kind for message in seam.inbox.pending(ME, known={ids["kill"], ids["approve"]}, limit=2)] == ["stop", "deny"]


def test_a_message_is_recorded_once(seam: Seam) -> None:
    (id,) = added(seam, "stop")
    hold(seam, "order")
    assert (seam.inbox.position(id), seam.inbox.position(id + 1)) == (0, 0)
    with seam.commit():
        seam.inbox.mark_recorded(id, 11)
        seam.inbox.mark_recorded(id, 12)
    assert seam.inbox.position(id) == 11
    assert seam.inbox.pending(ME) == []
    assert added(seam, "stop") > [id]


async def test_a_message_names_the_event_that_it_is_about(seam: Seam) -> None:
    """An answer the question; an end the latest event of the run."""
    journal, call = seam.journal, "order/0/0"
    asked = journal.append(Draft(kind="call.suspended", run="order", call=call, body=b"{}"))
    latest = journal.append(Draft(kind="call.received", run="order", call="order/0/1", body=b"{}"))
    await journal.durable(latest)
    with seam.commit():
        for kind, target in (("approve", call), ("deny", "unknown"), ("stop", "order"), ("kill", "order")):
            seam.inbox.add(run="order", kind=kind, target=target, actor="", reason="", at_ns=1)
    hold(seam, "order")
    causes = {message.kind: message.cause for message in seam.inbox.pending(ME)}
    assert causes == {"approve": asked, "deny": 0, "stop": latest, "kill": latest}
