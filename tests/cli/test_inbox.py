"""`callgate approvals`, `approve`, `deny`, `stop` and `kill`: the real commands, for a run in another process or before it resumes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from callgate.testing import Call, Item, ScriptedServer
from tests.cli.runs import CRM, DONE, PAYS, begun_run, ended, paid, told, waiting_run
from tests.cli.shell import as_any_user, shell

STANDS: list[Item] = ["I wait.", Call("wait", {"seconds": 600})]


@pytest.mark.parametrize(("answer", "effects"), [("approve", ["A7 12"]), ("deny", [])])
async def test_a_question_is_answered_from_another_process_and_the_run_is_resumed(folder: Path, answer: str, effects: list[str]) -> None:
    async with ScriptedServer([PAYS, DONE]) as server:
        waits = await waiting_run(folder, server)
        listed = await ended(folder, "approvals", "--json")
        (question,) = listed.lines
        assert (question["tool"], question["run"], question["held_by"]) == ("refund", waits["run"], "")
        shown = await ended(folder, "approvals")
        assert (question["approval"] in shown.out, "nobody" in shown.out) == (True, True)
        said = await ended(folder, answer, question["approval"], "--reason", "checked", "--by", "carol")
        assert said.code == 0
        assert f"callgate resume {waits['run']}" in said.err
        done = await ended(folder, "resume", waits["run"][:12], "--base-url", server.url, *CRM, "--json")
    assert (done.code, told(done, "run_ended")["status"], paid(folder)) == (0, "completed", effects)
    assert "Nothing waits" in (await ended(folder, "approvals")).err
    kinds = [line["kind"] for line in (await ended(folder, "log", "export")).lines]
    assert (kinds.count("inbox.taken"), kinds.count("approval.answered")) == (1, 1)
    again = await ended(folder, answer, question["approval"])
    assert again.code == 2
    assert "answered" in again.err


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_stop_and_kill_end_a_run_in_another_process(folder: Path, end: str) -> None:
    """A stop lets the running call finish, which would take ten minutes here, so a kill follows."""
    async with ScriptedServer([STANDS, DONE]) as server:
        process, run = await begun_run(folder, server, "Wait.")
        assert process.stdout is not None
        resumed = await ended(folder, "resume", run, "--base-url", server.url, *CRM)
        assert (resumed.code, f"worked on by process {process.pid}" in resumed.err) == (2, True)
        said = await ended(folder, end, run, "--reason", "wrong task", "--by", "carol", "--wait", "60", "--json")
        (fate,) = said.lines
        assert (said.code, fate["status"], fate["held_by"]) == (0, "taken", f"process {process.pid}")
        if end == "stop":
            await ended(folder, "kill", run, "--wait", "60")
        rest = (await process.stdout.read()).decode().splitlines()
        await process.wait()
    over: dict[str, Any] = json.loads(rest[-1])
    assert (over["event"], over["turn_status"]) == ("run_ended", "stopped_by_user")
    assert "wrong task (carol)" in over["reason"]
    late = await ended(folder, end, run)
    assert (late.code, f"There is nothing to {end}" in late.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("approve", "nobody/0/0"), "No question 'nobody/0/0' is on record"),
        (("deny", "nobody/0/0"), "lists what waits"),
        (("stop", "nobody"), "No run 'nobody' is on record"),
        (("kill", "nobody", "--wait", "-1"), "--wait is -1; it must be from 0"),
        (("approvals", "--journal", ":memory:"), "in memory belongs to one process"),
        (("approvals", "--journal", "absent.db"), "There is no journal at absent.db"),
        (("approvals", "--journal", "crm.py"), "cannot be read as a journal"),
    ],
)
async def test_an_invalid_inbox_command_is_refused_with_the_next_step(folder: Path, words: tuple[str, ...], why: str) -> None:
    await ended(folder, "call", "list_files")
    done = await ended(folder, *words)
    assert (done.code, done.out) == (2, "")
    assert why in " ".join(done.err.split())
    assert len(done.err.splitlines()) <= 2


async def test_the_command_that_lists_open_questions_names_the_journal_that_was_given(folder: Path) -> None:
    await ended(folder, "call", "list_files", "--journal", "team calls.db")
    done = await ended(folder, "deny", "nobody/0/0", "--journal", "team calls.db")
    assert "`callgate approvals --journal 'team calls.db'` lists what waits" in " ".join(done.err.split())


def asked(folder: Path, order: str, *words: str) -> str:
    """Make a call without an agent that needs approval; return the approval's id."""
    told = shell(folder, "call", "refund", f"order={order}", "cents=12", *CRM, "--policy", "rules.toml", *words, "--json")
    assert told.code == 4
    return str(told.json["approval_id"])


@pytest.mark.parametrize(("answer", "effects"), [("approve", ["A7 12"]), ("deny", [])])
def test_approving_a_call_outside_an_agent_prints_the_command_to_run_it(folder: Path, answer: str, effects: list[str]) -> None:
    """A call without an agent is not resumed: it must be made again with the same options, and the printed command does so."""
    question = asked(folder, "A7", "--actor", "joe", "--key", "k 1", "--journal", "other journal.db")
    said = shell(folder, answer, question, "--journal", "other journal.db")
    assert (said.code, "resume" in said.err, "not an agent's run" in said.err) == (0, False, True)
    commands = said.err.splitlines()[1:]
    assert len(commands) == len(effects)
    for line in commands:
        done = shell(folder, *shlex.split(line)[1:], *CRM, "--policy", "rules.toml")
        assert (done.code, done.out) == (0, "paid 12 for A7\n")
    assert paid(folder) == effects


def test_approvals_of_intact_runs_are_listed_and_a_damaged_run_is_named(folder: Path) -> None:
    lost, kept = asked(folder, "A7", "--run", "lost"), asked(folder, "B8", "--run", "kept")
    with contextlib.closing(sqlite3.connect(folder / ".callgate" / "journal.db")) as connection, connection:
        connection.execute("UPDATE events SET body = x'7b22' WHERE kind = 'call.suspended' AND call = ?", (lost,))
    listed = shell(folder, "approvals", "--json")
    assert (listed.code, [line["approval"] for line in listed.lines]) == (1, [kept])
    shown = shell(folder, "approvals")
    assert (shown.code, kept in shown.out, lost in shown.out) == (1, True, False)
    assert "Run 'lost' cannot be read" in shown.err
    assert "callgate log verify" in shown.err
    with contextlib.closing(sqlite3.connect(folder / ".callgate" / "journal.db")) as connection, connection:
        connection.execute("UPDATE events SET parents = 'x' WHERE kind = 'call.suspended'")
    assert (shell(folder, "approvals").code, shell(folder, "approvals", "--json").out) == (1, "")


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_approvals_are_listed_with_read_only_access(folder: Path) -> None:
    question = asked(folder, "A7")
    place = folder / ".callgate"
    for path in place.iterdir():
        path.chmod(0o500 if path.is_dir() else 0o400)
    place.chmod(0o500)
    try:
        done = as_any_user(folder, "approvals", "--json")
    finally:
        for path in (place, *place.iterdir()):
            path.chmod(0o700)
    assert (done.code, done.err, done.json["approval"]) == (0, "", question)


def test_a_call_is_approved_with_other_arguments_from_the_command_line(folder: Path) -> None:
    question = asked(folder, "A7", "--run", "case")
    for words, why in (("[1]", "it must be one JSON object"), ("{", "is not JSON"), ("@absent.json", "cannot be read")):
        wrong = shell(folder, "approve", question, "--arguments", words)
        assert (wrong.code, why in " ".join(wrong.err.split())) == (2, True)
    assert shell(folder, "approve", question, "--arguments", '{"order": "A7", "cents": 5}', "--by", "carol").code == 0
    done = shell(folder, "call", "refund", "order=A7", "cents=12", *CRM, "--policy", "rules.toml", "--run", "case", "--json")
    assert (done.code, paid(folder)) == (0, ["A7 5"])
    assert 'carol approved it with {\\"cents\\":5,\\"order\\":\\"A7\\"}' in done.out


@pytest.mark.parametrize(("key", "again"), [((), 4), (("--key", "k"), 1)], ids=["without a key", "with a key"])
def test_a_denied_call_made_again_from_the_command_line_gets_the_denial_as_the_command_says(
    folder: Path, key: tuple[str, ...], again: int
) -> None:
    question = asked(folder, "A7", "--run", "case", *key)
    told = " ".join(shell(folder, "deny", question, "--reason", "wrong order", "--by", "carol").err.split())
    assert "Made again in that run with the same id or key, it gets the denial each time; without them, an identical call" in told
    call = ("call", "refund", "order=A7", "cents=12", *CRM, "--policy", "rules.toml", "--run", "case", *key, "--json")
    done = shell(folder, *call)
    assert (done.code, done.json["code"], "carol said no: wrong order" in done.json["error"]) == (1, "human_denied", True)
    assert shell(folder, *call).code == again
    assert paid(folder) == []


def test_a_corrected_approval_replaces_one_that_no_process_has_taken_and_the_commands_say_so(folder: Path) -> None:
    question = asked(folder, "A7", "--journal", "calls.db")
    words = (question, "--journal", "calls.db", "--by", "carol")
    assert shell(folder, "approve", *words).code == 0
    second = shell(folder, "approve", *words, "--arguments", '{"order": "A7", "cents": 5}')
    assert (second.code, "replaces an earlier answer that no process has taken: yes by carol" in " ".join(second.err.split())) == (0, True)
    listed = shell(folder, "approvals", "--journal", "calls.db", "--json").json["sent"]
    assert (listed["allow"], listed["by"], listed["arguments"]) == (True, "carol", {"order": "A7", "cents": 5})
    assert "not taken yet" in " ".join(shell(folder, "approvals", "--journal", "calls.db").out.split())
    same = shell(folder, "approve", *words, "--arguments", '{"order": "A7", "cents": 5}')
    assert (same.code, "answered with yes, with these arguments, already, by carol at" in " ".join(same.err.split())) == (2, True)
    (line,) = second.err.splitlines()[-1:]
    done = shell(folder, *shlex.split(line)[1:], *CRM, "--policy", "rules.toml")
    assert (done.code, paid(folder)) == (0, ["A7 5"])


def test_an_approval_that_lacks_an_argument_of_the_call_is_refused_unless_it_says_that_it_leaves_it_out(folder: Path) -> None:
    question = asked(folder, "A7")
    refused = shell(folder, "approve", question, "--arguments", '{"order": "A7"}')
    assert (refused.code, "replace all of the call's, and lack cents. Give all of them." in " ".join(refused.err.split())) == (2, True)
    assert shell(folder, "approvals", "--json").json["sent"] is None
    said = shell(folder, "approve", question, "--arguments", '{"order": "A7"}', "--leave-out")
    assert (said.code, "Note: the call runs without cents." in " ".join(said.err.split())) == (0, True)
    whole = shell(folder, "approve", question, "--arguments", '{"order": "A7", "cents": 5}', "--json").json
    assert (whole["left_out"], whole["status"]) == ([], "waiting")


@pytest.mark.parametrize(("answer", "said"), [("approve", "allowed"), ("deny", "refused")])
def test_the_list_of_calls_shows_that_a_question_was_answered(folder: Path, answer: str, said: str) -> None:
    question = asked(folder, "A7", "--run", "case")
    assert "answered" not in shell(folder, "log", "list").out
    shell(folder, answer, question)
    shell(folder, "call", "refund", "order=A7", "cents=12", *CRM, "--policy", "rules.toml", "--run", "case")
    assert f"asked answered: {said}" in shell(folder, "log", "list").out
    assert [call["answer"] for call in shell(folder, "log", "list", "--json").lines] == [said, ""]


@pytest.mark.parametrize("width", ["30", "60"])
def test_a_table_that_a_terminal_is_too_narrow_for_is_shown_row_by_row(folder: Path, width: str) -> None:
    """Beside each other, the columns would have two or three characters each."""
    question, _ = asked(folder, "A7", "--run", "case"), asked(folder, "B8", "--run", "other")
    lines = shell(folder, "approvals", COLUMNS=width).out.splitlines()
    assert all(len(line) <= int(width) for line in lines)
    first = [line.split() for line in lines[: lines.index("")]]
    assert [words[:2] for words in first[:2]] == [["approval", question], ["tool", "refund"]]
    assert {words[0] for words in first} >= {"arguments", "question", "asked", "expires", "worked"}
    assert "answer" not in {words[0] for words in first}  # nobody has sent one


def test_equal_questions_of_one_run_are_said_to_be_equal_because_each_yes_lets_a_call_run(folder: Path) -> None:
    """A loop that makes a call that waits again, under a new id, asks again."""

    @tool(requires_approval=True)
    def pay(order: str) -> str:
        """Pay an order."""
        return order

    engine = Engine([pay], journal=SqliteJournal(folder / "calls.db"))
    for id, order, run in (("c1", "A7", "case"), ("c2", "A7", "case"), ("c3", "B8", "case"), ("c4", "A7", "other")):
        engine.call_sync(RawCall(id=id, name="pay", arguments={"order": order}), Scope(run=run))
    engine.close_sync()
    said = " ".join(shell(folder, "approvals", "--journal", "calls.db").err.split())
    assert "2 of them ask about equal calls of one run: case/0/0, case/0/1. Each yes lets the call run once." in said
    shell(folder, "deny", "case/0/1", "--journal", "calls.db")
    assert "equal" not in shell(folder, "approvals", "--journal", "calls.db").err
