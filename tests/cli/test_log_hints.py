"""What the commands say where nothing matches, nothing ran again, or nothing waits any longer."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Suspended, tool
from tests.cli.shell import Ended, shell
from tests.engine_calls import result_of


@tool(key="pay:{order}", requires_approval=True)
def pay(order: str) -> str:
    """Pay an order."""
    return "paid"


PAY = RawCall(id="c1", name="pay", arguments={"order": "A7"})
RUN = Scope(run="case")


def said(folder: Path, *words: str) -> Ended:
    return shell(folder, *words, "--journal", "calls.db")


def opened(folder: Path) -> Engine:
    return Engine([pay], journal=SqliteJournal(folder / "calls.db"))


async def asked(engine: Engine) -> str:
    """Return the id of the question about the payment."""
    outcome = await engine.call(PAY, RUN)
    assert isinstance(outcome, Suspended)
    return outcome.approval_id


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--field", "status=unkown"), "No call has the status 'unkown'. Did you mean unknown?"),
        (("--field", "stats=ok"), "None of the latest events has a field 'stats'. Did you mean status?"),
        (("--tool", "pya"), "No recent call of a tool 'pya' is on record. Did you mean pay? There are: pay."),
        (("--field", "status=error"), "No calls match."),
    ],
)
async def test_a_list_without_calls_says_what_does_not_exist_and_what_is_near(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    async with opened(tmp_path) as engine:
        await engine.approve(await asked(engine), by="ann")
        await engine.call(PAY, RUN)
    done = said(tmp_path, "log", "list", *words)
    assert (done.code, done.out, told in done.err) == (0, "", True)


async def test_the_calls_that_a_human_was_asked_about_are_listed_by_their_status(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        await engine.approve(await asked(engine), by="ann")
        await engine.call(PAY, RUN)
        assert isinstance(await engine.call(RawCall(id="c2", name="pay", arguments={"order": "B1"}), RUN), Suspended)
    listed = said(tmp_path, "log", "list", "--field", "status=asked", "--json")
    assert [(line["status"], line["id"]) for line in listed.lines] == [("asked", "c1"), ("asked", "c2")]


async def test_the_list_shows_arguments_on_request_and_a_replay_as_such_and_not_as_allowed_by_a_person(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        await engine.approve(await asked(engine), by="ann")
        first, second = [result_of(await engine.call(PAY, RUN)) for _ in range(2)]
    lines = {line.split()[1]: line for line in said(tmp_path, "log", "list").out.splitlines()[1:]}
    assert "allowed by ann" in lines[first.uid]
    assert '{"order":"A7"}' not in lines[first.uid]
    assert '{"order":"A7"}' in said(tmp_path, "log", "list", "--arguments").out.splitlines()[2]
    assert ("allowed by ann" in lines[second.uid], lines[second.uid].rstrip().endswith("replayed")) == (False, True)


async def test_an_approval_that_the_process_receives_says_what_to_do_if_the_call_no_longer_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        question = await asked(engine)
        with engine.runs.at_work("case"):
            done = await asyncio.to_thread(said, tmp_path, "approve", question, "--wait", "60")
            assert (done.code, "has received it" in done.err) == (0, True)
            assert "If the call no longer waits there: the call runs when it is made again in that run" in " ".join(done.err.split())
            assert result_of(await engine.call(PAY, RUN)).text == "paid"


async def test_an_answer_for_a_run_without_a_name_says_that_nothing_takes_it_after_the_program_has_ended(tmp_path: Path) -> None:
    for scope, unnamed in ((Scope(), True), (RUN, False)):
        async with opened(tmp_path) as engine:
            outcome = await engine.call(PAY, scope)
        assert isinstance(outcome, Suspended)
        done = said(tmp_path, "approve", outcome.approval_id)
        text = " ".join(done.err.split())
        assert (done.code, "Name the run in the program, with Scope(run=...)." in text) == (0, unnamed)


async def test_the_open_questions_are_listed_with_the_time_at_which_they_were_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        await asked(engine)
    header, line = said(tmp_path, "approvals").out.splitlines()
    assert "asked" in header
    assert header.index("asked") < header.index("expires") < len(line)


def test_words_that_a_command_does_not_take_are_named_without_the_parsers_own_term(tmp_path: Path) -> None:
    done = shell(tmp_path, "log", "list", "calls")
    assert "Did you mean --run calls?" in done.err
    assert (done.code, "The command takes no calls." in done.err, "Unused Tokens" in done.err) == (2, True, False)


@pytest.mark.parametrize("more", [(), ("--json",), ("--journal", "x.db")])
def test_an_option_without_its_value_is_told_so(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = shell(tmp_path, "log", "list", "--run", *more)
    assert (done.code, "--run needs a value after it." in done.err, "takes no" in done.err) == (2, True, False)


def test_an_option_that_a_command_does_not_have_is_named_alone(tmp_path: Path) -> None:
    assert "The command takes no --yes." in shell(tmp_path, "mcp", "add", "shop", "--yes", "--", "python", "shop.py").err


async def test_the_list_marks_results_of_the_cache_and_has_the_day_of_calls_that_were_not_made_today(tmp_path: Path) -> None:
    @tool(effect="none", cacheable=True, cache_scope="session")
    async def price(article: str) -> str:
        """Return a price."""
        return "420"

    async with Engine([price], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        for _ in range(2):
            await engine.call(RawCall(name="price", arguments={"article": "tea"}), RUN)
    with closing(sqlite3.connect(tmp_path / "calls.db")) as database, database:
        database.execute("UPDATE events SET at_ns = 1700000000000000000 WHERE call = 'case/0/0'")
    old, cached = said(tmp_path, "log", "list").out.splitlines()[1:]
    assert (old.split()[0][:7], cached.split()[0][2]) == ("2023-11", ":")
    assert ["from the cache" in line for line in (old, cached)] == [False, True]
