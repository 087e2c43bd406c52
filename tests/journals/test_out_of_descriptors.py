"""Tests of a process that runs out of file descriptors temporarily: its journal continues, and no effect is lost or repeated."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from callgate import Engine, Scope, SqliteJournal
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, said


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
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
