"""Commands that act on a call, a question or a run take the beginning of its id, if nothing else on record can be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runs import CRM, paid
from tests.cli.shell import Ended, shell
from tests.cli.test_inbox import asked


def refusal(done: Ended) -> str:
    assert (done.code, done.out) == (2, "")
    return " ".join(done.err.split())


def answers(folder: Path) -> list[bool | None]:
    """Return the answers that wait in the inbox, of all open questions."""
    return [one["sent"] and one["sent"]["allow"] for one in shell(folder, "approvals", "--json").lines]


@pytest.mark.parametrize(("answer", "allow"), [("approve", True), ("deny", False)])
def test_a_question_is_answered_by_the_beginning_of_its_id(folder: Path, answer: str, allow: bool) -> None:
    asked(folder, "A7", "--run", "march-invoices")
    asked(folder, "B8", "--run", "april-invoices")
    said = shell(folder, answer, "march", "--json")
    assert (said.code, said.json["run"]) == (0, "march-invoices")
    assert answers(folder) == [allow, None]


def test_a_beginning_of_several_ids_is_refused_and_at_most_five_are_named(folder: Path) -> None:
    for number in range(7):
        asked(folder, "A7", "--run", f"case-{number}")
    why = refusal(shell(folder, "approve", "case-"))
    assert "'case-' is the beginning of several ids." in why
    assert why.endswith("case-2/0/0, case-3/0/0, case-4/0/0, case-5/0/0, case-6/0/0, and 2 earlier ones.")
    assert answers(folder) == [None] * 7


@pytest.mark.parametrize("given", ["case-1", "case-1/0/0", "last", "cas", ""], ids=["a run", "a call", "the newest run", "short", "empty"])
def test_what_means_something_else_is_not_taken_for_the_beginning_of_a_questions_id(folder: Path, given: str) -> None:
    """`case-1/0/0` was no question: its beginning `case-1` must not approve the payment of `case-10`."""
    shell(folder, "call", "list_files", "--run", "case-1")
    asked(folder, "A7", "--run", "case-10")
    refusal(shell(folder, "approve", given))
    asked(folder, "A7", "--run", "last-orders")
    refusal(shell(folder, "approve", given))
    assert answers(folder) == [None, None]


def test_the_beginning_of_an_answered_question_never_means_the_next_one(folder: Path) -> None:
    """Between a list of the questions and the answer, somebody else may have answered and the run may have asked again."""
    asked(folder, "A7", "--run", "march")
    shell(folder, "approve", "march/0/0")
    shell(folder, "call", "refund", "order=A7", "cents=12", *CRM, "--policy", "rules.toml", "--run", "march")
    asked(folder, "B8", "--run", "march")
    assert "is the beginning of several ids" in refusal(shell(folder, "approve", "march/0"))
    assert (answers(folder), paid(folder)) == ([None], ["A7 12"])


def test_a_run_is_stopped_and_a_call_settled_by_the_beginning_of_its_id_only_if_it_is_the_only_one(folder: Path) -> None:
    for run in ("march-invoices", "april-invoices", "april-orders"):
        shell(folder, "call", "list_files", "--run", run)
    assert "Nobody works on run 'march-invoices'" in refusal(shell(folder, "stop", "march"))
    assert "The call 'march-invoices/0/0' is not in doubt" in refusal(shell(folder, "settle", "march", "--happened"))
    assert "april-invoices, april-orders." in refusal(shell(folder, "kill", "april"))
    assert "april-invoices/0/0, april-orders/0/0." in refusal(shell(folder, "settle", "april", "--happened"))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_id_of_a_call_is_refused_with_the_run_that_ends_it(folder: Path, end: str) -> None:
    shell(folder, "call", "list_files", "--run", "march")
    assert f"'march/0/0' is a call. Give its run, 'march': a {end} is for all calls of a run." in refusal(shell(folder, end, "march/0/0"))


def test_the_log_shows_a_call_or_a_run_by_the_beginning_of_its_id(folder: Path) -> None:
    for run in ("march-invoices", "april-invoices"):
        shell(folder, "call", "list_files", "--run", run)
    shown = [{line["call"] for line in shell(folder, "log", "show", words, "--json").lines} for words in ("march", "april-invoices/0")]
    assert shown == [{"march-invoices/0/0"}, {"april-invoices/0/0"}]
