"""A run with several prompts at one terminal; another terminal answers them or ends the run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from callgate.testing import Call, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.cli.runs import CRM, DONE, ended, paid, told, waiting_run
from tests.cli.terminal import command_at_terminal
from tests.cli.test_run_at_terminal import at_terminal

THREE: Script = ["I pay.", *(Call("refund", {"order": f"A{number}", "cents": number}) for number in (1, 2, 3))]


ALL, REST = ["A1 1", "A2 2", "A3 3"], ["A2 2", "A3 3"]


@pytest.mark.parametrize(
    ("first", "elsewhere", "effects"),
    [("y", "approve", [ALL]), ("y", "deny", [ALL, REST]), ("n", "approve", [ALL, REST]), ("n", "deny", [REST])],
    ids=["yes, yes", "yes, no", "no, yes", "no, no"],
)
async def test_a_run_continues_after_an_answer_to_its_open_prompt_at_another_terminal(
    folder: Path, first: str, elsewhere: str, effects: list[list[str]]
) -> None:
    """A denial withdraws an approval that no call has used yet; otherwise the first answer counts. The run continues either way."""
    async with at_terminal(folder, [THREE, DONE]) as terminal:
        await terminal.until(b"Run it? [y/N]")
        (asked, *_) = sorted(one["approval"] for one in (await ended(folder, "approvals", "--json")).lines)
        terminal.process.send_signal(signal.SIGSTOP)  # both answers are there when the process continues
        await ended(folder, elsewhere, asked, "--by", "carol", "--wait", "0")
        terminal.type(first.encode() + b"\n")
        terminal.process.send_signal(signal.SIGCONT)
        for _ in range(2):
            await terminal.until(b"Run it? [y/N]")
            terminal.type(b"y\n")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
        sent: Any = terminal.server.requests[1].body_json
    results = [message["content"] for message in sent["messages"] if message["role"] == "tool"]
    assert paid(folder) in effects
    assert ["for A1" in results[0], "for A2" in results[1], "for A3" in results[2]] == [len(paid(folder)) == 3, True, True]


async def test_questions_answered_at_another_terminal_need_no_second_answer(folder: Path) -> None:
    async with at_terminal(folder, [THREE, DONE]) as terminal:
        await terminal.until(b"Run it? [y/N]")
        (_, second, third) = sorted(one["approval"] for one in (await ended(folder, "approvals", "--json")).lines)
        for question, answer in ((second, "deny"), (third, "approve")):
            await ended(folder, answer, question, "--by", "carol\x1b[31m", "--wait", "0")
        terminal.type(b"y\n")
        shown = await terminal.until(b"Run it?", b"callgate log show")
        while shown.endswith(b"Run it?"):  # the journal is polled, and the next prompt may appear before the answer is read
            terminal.type(b"y\n" if b'"A3"' in shown else b"n\n")
            shown = await terminal.until(b"Run it?", b"callgate log show")
        assert await terminal.end() == 0
    assert sorted(paid(folder)) == ["A1 1", "A3 3"]
    assert b"\x1b[31m" not in shown


async def test_resume_accepts_answers_that_were_already_given_elsewhere(folder: Path) -> None:
    """Two users answer the same approvals: the second one can still resume the run."""
    async with ScriptedServer([THREE, DONE]) as server:
        run = (await waiting_run(folder, server))["run"]
        first, second, third = (f"{run}/0/{place}" for place in range(3))
        resume = ("resume", run, "--base-url", server.url, *CRM, "--json")
        assert (await ended(folder, "approve", first, "--by", "carol")).code == 0
        assert (await ended(folder, "deny", second, "--by", "carol")).code == 0
        partly = await ended(folder, *resume, "--allow", first, "--allow", second)
        assert (partly.code, paid(folder)) == (4, ["A1 1"])
        answers = [line for line in partly.lines if line["event"] == "question_answered"]
        assert [(one["approval"], one["allowed"], one["by"], one["elsewhere"]) for one in answers] == [
            (first, True, "carol", True),
            (second, False, "carol", True),
        ]
        done = await ended(folder, *resume, "--allow", first, "--deny", second, "--allow", third)
        assert (done.code, told(done, "run_ended")["status"]) == (0, "completed")
        assert "needs no answer any more" in done.err
    assert paid(folder) == ["A1 1", "A3 3"]


@pytest.mark.parametrize("words", [(), ("--chat",)], ids=["run", "chat"])
async def test_an_answer_from_another_terminal_ends_the_open_prompt(folder: Path, words: tuple[str, ...]) -> None:
    """Nothing is typed here: each prompt ends when it is answered elsewhere, and the run ends as if it had been answered here."""
    turns: list[Script] = ["Hello.", THREE, DONE] if words else [THREE, DONE]
    async with at_terminal(folder, turns, *words) as terminal:
        if words:  # a later turn of a chat is a run other than the engine's own
            await terminal.until(b"you> ")
            terminal.type(b"Pay.\n")
        for answer in ("approve", "deny", "approve"):
            await terminal.until(b"Run it? [y/N]")
            (asked, *_) = sorted(one["approval"] for one in (await ended(folder, "approvals", "--json")).lines)
            assert (await ended(folder, answer, asked, "--by", "carol", "--json")).json["status"] == "taken"
            await terminal.until(b"was answered by carol")
        await terminal.until(b"you> " if words else b"callgate log show")
        if words:
            terminal.type(b"\x04")
            await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
    assert sorted(paid(folder)) == ["A1 1", "A3 3"]


@pytest.mark.parametrize("word", ["stop", "kill"])
@pytest.mark.parametrize("words", [(), ("--chat",)], ids=["run", "chat"])
async def test_a_stop_or_kill_from_another_terminal_ends_the_prompt_and_the_run(folder: Path, words: tuple[str, ...], word: str) -> None:
    """Nothing is typed here: no further prompt appears, none of the calls runs, and a chat continues."""
    turns: list[Script] = ["Hello.", THREE, DONE] if words else [THREE]
    async with at_terminal(folder, turns, *words) as terminal:
        if words:
            await terminal.until(b"you> ")
            terminal.type(b"Pay.\n")
        await terminal.until(b"Run it? [y/N]")
        (asked, *rest) = sorted(one["approval"] for one in (await ended(folder, "approvals", "--json")).lines)
        assert (await ended(folder, "approve", rest[-1], "--by", "carol", "--json")).json["status"] == "taken"
        assert (await ended(folder, word, asked.rsplit("/", 2)[0], "--by", "carol", "--json")).json["status"] == "taken"
        shown = await terminal.until(b"from another process: no reason given (carol)")
        assert b"Run it?" not in shown
        if words:
            await terminal.until(b"you> ")
            terminal.type(b"Go on.\n")
            await terminal.until(b"you> ")
            terminal.type(b"\x04")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == (0 if words else 5)
    assert paid(folder) == []


SINGLE_CALL = ("call", "refund", "order=A7", "cents=12", "--tools", "crm.py", "--policy", "rules.toml")


async def test_an_answer_from_another_terminal_ends_the_prompt_of_a_single_call(folder: Path) -> None:
    async with command_at_terminal(folder, *SINGLE_CALL) as terminal:
        await terminal.until(b"Run it? [y/N]")
        (asked,) = (await ended(folder, "approvals", "--json")).lines
        assert (await ended(folder, "approve", asked["approval"], "--by", "carol", "--json")).json["status"] == "taken"
        await terminal.until(b"paid 12 for A7")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
    assert paid(folder) == ["A7 12"]


@pytest.mark.parametrize("word", ["stop", "kill"])
async def test_a_stop_or_kill_from_another_terminal_ends_the_prompt_of_a_single_call(folder: Path, word: str) -> None:
    """Nothing is typed here: the prompt ends, and the call does not run."""
    async with command_at_terminal(folder, *SINGLE_CALL) as terminal:
        await terminal.until(b"Run it? [y/N]")
        (asked,) = (await ended(folder, "approvals", "--json")).lines
        assert (await ended(folder, word, asked["approval"].rsplit("/", 2)[0], "--by", "carol", "--json")).json["status"] == "taken"
        await terminal.until(b"Nothing ran.")
        assert await terminal.end() == 4
    assert paid(folder) == []


async def test_a_run_shows_the_arguments_with_which_another_terminal_approved_its_call(folder: Path) -> None:
    one: Script = [Call("refund", {"order": "A1", "cents": 5000})]
    async with at_terminal(folder, [one, DONE]) as terminal:
        await terminal.until(b"Run it? [y/N]")
        (asked,) = (line["approval"] for line in (await ended(folder, "approvals", "--json")).lines)
        assert (await ended(folder, "approve", asked, "--by", "carol", "--arguments", '{"order": "A1", "cents": 7}')).code == 0
        shown = await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
    assert b'The arguments were changed (cents): carol approved it with {"cents":7,"order":"A1"}.' in shown
    assert paid(folder) == ["A1 7"]
