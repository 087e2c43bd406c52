"""The commands that tell of calls whose outcome is unknown, after a process was killed while its tools ran."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.cli.shell import Ended, shell
from tests.forked_python import python

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="kills a process")]

PROGRAM = '''
import os, signal, sys
from callgate import Engine, RawCall, Scope, SqliteJournal, tool

@tool(key="pay:{order}")
def pay(order: str) -> str:
    """Pay an order."""
    os.kill(os.getpid(), signal.SIGKILL)

@tool
def book(order: str) -> str:
    """Book an order."""
    os.kill(os.getpid(), signal.SIGKILL)

engine = Engine([pay, book], journal=SqliteJournal("calls.db"))
engine.call_sync(RawCall(name=sys.argv[1], arguments={"order": "A7"}, id="c1"), Scope(run="case"))
'''
PAID, REFUSED, BOOKED = "case/0/0", "case/0/1", "case/0/2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the journal of a payment that was killed, the same one refused after that, and a killed booking."""
    for tool, code in (("pay", -signal.SIGKILL), ("pay", 0), ("book", -signal.SIGKILL)):
        assert python(PROGRAM, tool, folder=tmp_path).code == code
    return tmp_path


def said(folder: Path, *words: str) -> Ended:
    return shell(folder, *words, "--journal", "calls.db")


def listed(folder: Path, status: str) -> list[str]:
    return [call["uid"] for call in said(folder, "log", "list", "--field", f"status={status}", "--json").lines]


def test_calls_that_a_crash_left_open_are_found_by_the_status_that_the_list_shows(folder: Path) -> None:
    assert listed(folder, "unknown") == [PAID, REFUSED, BOOKED]
    assert listed(folder, "open") == []
    newest = said(folder, "log", "list", "--field", "status=unknown", "--json", "--limit", "1").lines
    assert [call["uid"] for call in newest] == [BOOKED]
    result = said(folder, "log", "result", PAID)
    assert (result.code, "its status is 'unknown' (its process ended before it answered" in result.err) == (1, True)


def test_the_list_tells_what_may_have_happened_from_what_was_refused_because_of_it(folder: Path) -> None:
    _, paid, refused, booked = said(folder, "log", "list").out.splitlines()
    assert (PAID in paid, "may have happened" in paid) == (True, True)
    assert f"not run: it is unknown whether {PAID} happened" in refused
    assert "may have happened" in booked


def test_settle_without_a_call_lists_what_must_be_settled(folder: Path) -> None:
    calls = said(folder, "settle", "--json").lines
    assert [(one["uid"], one["tool"], one["arguments"]) for one in calls] == [
        (PAID, "pay", '{"order":"A7"}'),
        (BOOKED, "book", '{"order":"A7"}'),
    ]
    shown = said(folder, "settle")
    assert (shown.code, BOOKED in shown.out, REFUSED in shown.out) == (0, True, False)
    assert "its process ended before it answered" in shown.out
    assert "callgate settle CALL --happened --journal calls.db` or `callgate settle CALL --not-happened --journal calls.db`" in shown.err
    missing = said(folder, "settle", "--happened")
    assert (missing.code, "lists the calls that must be settled" in missing.err) == (2, True)
    assert "in run case" in said(folder, "settle", BOOKED, "--happened").err
    assert "Every call with the same key of its effect, in any run" in said(folder, "settle", REFUSED, "--happened").err
    empty = said(folder, "settle")
    assert (empty.out, "No call has to be settled" in empty.err) == ("", True)


def test_rows_for_a_pipe_are_not_wrapped_and_ids_at_a_narrow_terminal_are_not_broken(folder: Path) -> None:
    assert len(said(folder, "log", "list").out.splitlines()) == 4
    narrow = shell(folder, "log", "list", "--journal", "calls.db", COLUMNS="40").out
    assert (len(narrow.splitlines()) > 4, all(uid in narrow for uid in (PAID, REFUSED, BOOKED))) == (True, True)


@pytest.mark.parametrize("words", [("log",), ("log", "list"), ("approvals",)], ids=lambda words: " ".join(words))
def test_a_journal_without_its_option_gets_a_hint(folder: Path, words: tuple[str, ...]) -> None:
    done = shell(folder, *words, "calls.db")
    assert (done.code, "Did you mean --journal calls.db?" in done.err) == (2, True)
    assert "Did you mean --journal" not in shell(folder, *words, "calls").err
