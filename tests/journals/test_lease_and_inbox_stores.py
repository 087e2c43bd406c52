"""Tests of the `LeaseStore` and `Inbox` contracts, run against every implementation."""

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
"""Writer numbers that no journal of these tests has."""


class Stores(Struct):
    """A store, and a journal that uses it."""

    leases: LeaseStore
    inbox: Inbox
    commit: Callable[[], AbstractContextManager[object]]
    journal: Journal


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "memory":
        memory = MemoryJournal(shared=True)
        yield Stores(memory.store.leases, memory.store.inbox, memory.store.inbox_commit, memory)
        return
    opened: SqliteJournal | PostgresJournal
    opened = SqliteJournal(tmp_path / "journal.db") if request.param == "sqlite" else PostgresJournal(request.getfixturevalue("database"))
    store = opened._commits._writer._store
    yield Stores(store.leases, store.inbox, store.commit, opened)
    await opened.close()


def lease(run: str = "order", *, epoch: int = 7, holder: int = ME, who: str = "process 1", expires_ns: int | None = 5) -> Lease:
    return Lease(run=run, epoch=epoch, holder=holder, who=who, expires_ns=expires_ns)


# Leases


@pytest.mark.parametrize("expires_ns", [None, 1, 9_000_000_000_000_000_000])
def test_a_stored_lease_is_returned_unchanged(stores: Stores, expires_ns: int | None) -> None:
    assert stores.leases.get("order") is None
    granted = lease(expires_ns=expires_ns, who="process 1 on \u00fc")
    with stores.commit():
        stores.leases.put(granted)
    assert stores.leases.get("order") == granted
    assert stores.leases.get("other") is None


def test_a_run_has_one_lease(stores: Stores) -> None:
    with stores.commit():
        stores.leases.put(lease(epoch=7))
        stores.leases.put(lease(epoch=8, holder=OTHER))
    assert stores.leases.get("order") == lease(epoch=8, holder=OTHER)
    assert (dict(stores.leases.epochs(ME)), dict(stores.leases.epochs(OTHER))) == ({}, {"order": 8})


def test_epochs_increase_and_the_last_one_is_returned(stores: Stores) -> None:
    with stores.commit():
        before = stores.leases.last_epoch()
        epochs = [stores.leases.next_epoch() for _ in range(3)]
        assert epochs == sorted(set(epochs))
        assert epochs[0] > before
        assert stores.leases.last_epoch() == epochs[-1]


def test_renew_extends_all_leases_of_one_holder_and_no_others(stores: Stores) -> None:
    with stores.commit():
        for run in ("a", "b"):
            stores.leases.put(lease(run))
        stores.leases.put(lease("c", holder=OTHER))
        stores.leases.renew(ME, 99)
    ends = {run: found.expires_ns for run in "abc" if (found := stores.leases.get(run))}
    assert ends == {"a": 99, "b": 99, "c": 5}


def test_a_lease_is_released_only_by_its_holder(stores: Stores) -> None:
    with stores.commit():
        for run in ("a", "b", "c"):
            stores.leases.put(lease(run, holder=OTHER if run == "c" else ME))
        stores.leases.release(OTHER, "a")
        stores.leases.release(ME, "b")
        stores.leases.release(ME, "unknown")
    assert [run for run in "abc" if stores.leases.get(run)] == ["a", "c"]
    with stores.commit():
        stores.leases.release_all(ME)
    assert [run for run in "abc" if stores.leases.get(run)] == ["c"]


def test_the_store_clock_is_monotonic_and_an_unknown_holder_is_not_alive(stores: Stores) -> None:
    with stores.commit():
        before = stores.leases.now_ns()
        assert stores.leases.now_ns() >= before
        assert not stores.leases.is_alive(ME)


# Inbox


def added(stores: Stores, *kinds: str, run: str = "order") -> list[int]:
    with stores.commit():
        return [stores.inbox.add(run=run, kind=kind, target=run, actor="ann", reason="why", at_ns=n) for n, kind in enumerate(kinds)]


def hold(stores: Stores, *runs: str, holder: int = ME) -> None:
    with stores.commit():
        for run in runs:
            stores.leases.put(lease(run, holder=holder))


def test_a_message_is_pending_for_the_holder_of_its_run(stores: Stores) -> None:
    (id,) = added(stores, "stop")
    assert stores.inbox.pending(ME) == []
    hold(stores, "order")
    hold(stores, "other", holder=OTHER)
    assert stores.inbox.pending(OTHER) == []
    assert stores.inbox.pending(ME) == [
        InboxMessage(id=id, run="order", kind="stop", target="order", actor="ann", reason="why", at_ns=0, cause=0)
    ]


def test_kill_and_stop_messages_come_before_older_messages(stores: Stores) -> None:
    ids = dict(zip(("approve", "stop", "deny", "kill"), added(stores, "approve", "stop", "deny", "kill"), strict=True))
    hold(stores, "order")
    assert [message.kind for message in stores.inbox.pending(ME)] == ["kill", "stop", "approve", "deny"]
    assert [message.kind for message in stores.inbox.pending(ME, limit=2)] == ["kill", "stop"]
    assert [message.kind for message in stores.inbox.pending(ME, known={ids["kill"], ids["approve"]}, limit=2)] == ["stop", "deny"]


def test_a_message_is_recorded_once(stores: Stores) -> None:
    (id,) = added(stores, "stop")
    hold(stores, "order")
    assert (stores.inbox.position(id), stores.inbox.position(id + 1)) == (0, 0)
    with stores.commit():
        stores.inbox.mark_recorded(id, 11)
        stores.inbox.mark_recorded(id, 12)
    assert stores.inbox.position(id) == 11
    assert stores.inbox.pending(ME) == []
    assert added(stores, "stop") > [id]


async def test_a_message_names_the_event_that_it_refers_to(stores: Stores) -> None:
    """An answer names its question; an end of the run names the run's latest event."""
    journal, call = stores.journal, "order/0/0"
    asked = journal.append(Draft(kind="call.suspended", run="order", call=call, body=b"{}"))
    latest = journal.append(Draft(kind="call.received", run="order", call="order/0/1", body=b"{}"))
    await journal.durable(latest)
    with stores.commit():
        for kind, target in (("approve", call), ("deny", "unknown"), ("stop", "order"), ("kill", "order")):
            stores.inbox.add(run="order", kind=kind, target=target, actor="", reason="", at_ns=1)
    hold(stores, "order")
    causes = {message.kind: message.cause for message in stores.inbox.pending(ME)}
    assert causes == {"approve": asked, "deny": 0, "stop": latest, "kill": latest}
