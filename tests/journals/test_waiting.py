"""Who waits for an event to be on disk is told once, and then no longer kept."""

from __future__ import annotations

from callgate._journal.commit_waiters import Waiters


async def test_each_is_taken_once_when_its_event_is_there() -> None:
    waiting = Waiters()
    first, second = waiting.add(3), waiting.add(5)
    assert waiting.take(2, {}) == []
    assert waiting.take(4, {}) == [first]
    assert waiting.take(4, {}) == []
    assert waiting.take(9, {}) == [second]
    assert waiting.take_all(OSError("full")) == []


async def test_what_will_not_be_is_told_to_whom_it_concerns() -> None:
    waiting, error = Waiters(), OSError("full")
    first, second = waiting.add(3), waiting.add(5)
    assert waiting.take(5, {5: error}) == [first, second]
    assert (first.error, second.error) == (None, error)
