"""Two workers of a web server on one journal: each message of a conversation may reach any of them, and one may be killed at any time.

The ledger that the tool writes decides what happened, not the journal under test.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate import inbox
from tests.effect_ledger import Ledger
from tests.recovery.chat_worker_process import chat_worker, send, served
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="stops and kills")]

_LONG_S = 3_000


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "journal.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))


def until_written(ledger: Ledger, line: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while line not in ledger.lines():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_two_workers_serve_the_messages_of_one_conversation_in_turn(place: str, ledger: Ledger) -> None:
    with chat_worker(place, ledger, _LONG_S) as one, chat_worker(place, ledger, _LONG_S) as other:
        results = [served(one if number % 2 else other, f"seat {number}") for number in range(6)]
        repeated = served(one, "seat 0")
    assert [result["status"] for result in results] == ["ok"] * 6
    assert len({result["uid"] for result in results}) == 6
    assert (repeated["status"], repeated["again"]) == ("ok", True)
    assert ledger.lines() == [f"seat {number}" for number in range(6)]


def test_a_worker_goes_on_with_the_conversation_of_one_that_was_killed_between_two_messages(place: str, ledger: Ledger) -> None:
    with chat_worker(place, ledger, _LONG_S) as one, chat_worker(place, ledger, _LONG_S) as other:
        served(other, "a")
        served(one, "b")
        one.send_signal(signal.SIGKILL)
        one.wait(PATIENCE_S)
        results = [served(other, "b"), served(other, "c")]
    assert [(result["status"], result["again"]) for result in results] == [("ok", True), ("ok", False)]
    assert ledger.lines() == ["a", "b", "c"]


def test_a_call_whose_worker_was_killed_is_unknown_at_the_next_worker_and_runs_no_second_time(place: str, ledger: Ledger) -> None:
    with chat_worker(place, ledger, _LONG_S) as one, chat_worker(place, ledger, _LONG_S) as other:
        served(other, "a")
        send(one, "hang")
        until_written(ledger, "hang")
        assert served(other, "b")["code"] == "run_held"
        one.send_signal(signal.SIGKILL)
        one.wait(PATIENCE_S)
        results = [served(other, "hang"), served(other, "b")]
    assert [result["status"] for result in results] == ["unknown", "ok"]
    assert ledger.lines() == ["a", "hang", "b"]


@pytest.mark.parametrize("answer", [inbox.approve, inbox.deny])
def test_a_worker_applies_the_answer_to_a_question_that_a_killed_worker_has_asked(
    place: str, ledger: Ledger, answer: Callable[..., object]
) -> None:
    with chat_worker(place, ledger, _LONG_S) as one, chat_worker(place, ledger, _LONG_S) as other:
        served(other, "a")
        asked = served(one, "ask")
        one.send_signal(signal.SIGKILL)
        one.wait(PATIENCE_S)
        answer(place, asked["approval_id"], by="boss")
        result = served(other, "ask")
    assert (result["status"], result["code"]) == (("ok", None) if answer is inbox.approve else ("error", "human_denied"))
    assert ledger.lines() == (["a", "ask"] if answer is inbox.approve else ["a"])
