"""Tests of the waiters for a durable event: each is notified once and then removed."""

from __future__ import annotations

from callgate._journal.commit_waiters import Waiters


async def test_each_waiter_is_taken_once_when_its_event_is_written() -> None:
    waiting = Waiters()
    first, second = waiting.add(3), waiting.add(5)
    assert waiting.take(2, {}) == []
    assert waiting.take(4, {}) == [first]
    assert waiting.take(4, {}) == []
    assert waiting.take(9, {}) == [second]
    assert waiting.take_all(OSError("full")) == []


async def test_an_error_is_given_only_to_the_waiter_of_its_event() -> None:
    waiting, error = Waiters(), OSError("full")
    first, second = waiting.add(3), waiting.add(5)
    assert waiting.take(5, {5: error}) == [first, second]
    assert (first.error, second.error) == (None, error)
