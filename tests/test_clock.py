"""New identifiers are different, also in a process that was forked from one that has drawn some."""

from __future__ import annotations

import multiprocessing
import re

from callgate._clock import SystemClock


def test_identifiers_have_16_lower_case_characters_and_are_different() -> None:
    clocks = SystemClock(), SystemClock()
    made = [clock.new_id() for clock in clocks for _ in range(1_000)]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in made)


def test_a_forked_process_makes_other_identifiers() -> None:
    """Those that were drawn before the fork are in both processes."""
    clock, context = SystemClock(), multiprocessing.get_context("fork")
    clock.new_id()
    reader, writer = context.Pipe(duplex=False)
    forked = context.Process(target=lambda: writer.send([clock.new_id() for _ in range(10)]))
    forked.start()
    there = reader.recv()
    forked.join()
    assert not set(there) & {clock.new_id() for _ in range(100)}
