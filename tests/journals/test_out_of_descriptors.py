"""Tests of a process that runs out of file descriptors temporarily: its journal continues, and no effect is lost or repeated."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from callgate import Engine, Scope, SqliteJournal, UsageError
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said


@contextmanager
def no_descriptor_left(*, but: int = 0) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(but):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("used_before", [False, True])
async def test_running_out_of_descriptors_temporarily_does_not_fail_the_journal(used_before: bool, ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    if used_before:
        async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
            assert (await said(engine, call("pay", to="eve"), Scope(run="before"))).success
    async with Engine([paying(paid := Ledger(tmp_path / "paid.txt"))], journal=SqliteJournal(path)) as engine:
        with no_descriptor_left():
            first = await said(engine, call("pay", to="ann"), Scope(run="r"))  # runs only if another thread frees a descriptor
            status = engine.journal.status()
        assert status.failure == ""
        assert (await said(engine, call("pay", to="bob"), Scope(run="r"))).success
        assert [event.kind for event in engine.journal.read(run="r")].count("call.started") == 2
    assert paid.lines() == (["ann", "bob"] if first.success else ["bob"])


@pytest.mark.parametrize("left", range(1, 7))
def test_a_journal_that_cannot_be_opened_for_want_of_descriptors_says_so(left: int, tmp_path: Path) -> None:
    """SQLite itself says only that it is unable to open the file, which would send the reader to look at the file."""
    with no_descriptor_left(but=left), pytest.raises(UsageError) as refused:
        SqliteJournal(tmp_path / "calls.db")
    assert "this process has too many files open. Raise its limit (ulimit -n), or close what leaves them open" in str(refused.value)
