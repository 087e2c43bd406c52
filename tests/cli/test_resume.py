"""`callgate resume`: the real command goes on with a run that another process was killed in, or that waits for a human."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callgate.testing import Call, Item, ScriptedServer
from tests.cli.runs import CRM, DONE, PAYS, begun_run, ended, paid, told, waiting_run

STALLS: list[Item] = ["I pay.", Call("refund", {"order": "A7", "cents": 12}), Call("wait", {"seconds": 600})]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_run_whose_process_was_killed_goes_on(folder: Path) -> None:
    """The payment stays made, the call that had begun is not run again, and the model hears of both."""
    async with ScriptedServer([STALLS, DONE]) as server:
        process, run = await begun_run(folder, server, "Pay.")
        process.send_signal(signal.SIGKILL)
        await process.wait()
        done = await ended(folder, "resume", run, "--base-url", server.url, *CRM, "--yes", "--json")
        sent: Any = server.requests[1].body_json["messages"]
    assert (done.code, told(done, "run_ended")["status"], paid(folder)) == (0, "completed", ["A7 12"])
    results = [message["content"] for message in sent if message["role"] == "tool"]
    assert "paid 12 for A7" in results[0]
    assert "may have taken effect" in results[1].lower()


@pytest.mark.parametrize(("answer", "effects"), [("--allow", ["A7 12"]), ("--deny", [])])
async def test_a_question_is_answered_by_the_command_that_goes_on(folder: Path, answer: str, effects: list[str]) -> None:
    async with ScriptedServer([PAYS, DONE]) as server:
        over = await waiting_run(folder, server)
        assert paid(folder) == []
        question = f"{over['run']}/0/0"
        done = await ended(folder, "resume", over["run"], answer, question, "--base-url", server.url, *CRM)
        assert (done.code, done.out.strip(), paid(folder)) == (0, "Done.", effects)
        again = await ended(folder, "resume", over["run"], answer, question, "--base-url", server.url, *CRM)
    assert again.code == 2
    assert paid(folder) == effects


async def test_a_question_that_nobody_answers_stays_open(folder: Path) -> None:
    async with ScriptedServer([PAYS, DONE]) as server:
        over = await waiting_run(folder, server)
        done = await ended(folder, "resume", over["run"], "--base-url", server.url, *CRM)
        assert done.code == 4
        assert f"callgate resume {over['run']} --allow" in done.err
        assert (await ended(folder, "resume", over["run"], "--base-url", server.url, *CRM, "--yes")).code == 0
    assert paid(folder) == ["A7 12"]


WRONG: dict[str, tuple[Sequence[str], str]] = {
    "no such run": (("resume", "nobody"), "on record"),
    "no journal": (("resume", "RUN", "--record", "absent.db"), "There is no journal"),
    "in memory": (("resume", "RUN", "--record", ":memory:"), "There is no journal"),
    "a file that is none": (("resume", "RUN", "--record", "crm.py"), "crm.py"),
    "no such question": (("resume", "RUN", "--allow", "RUN/9/9"), "No approval"),
    "both answers": (("resume", "RUN", "--allow", "a", "--deny", "a"), "both"),
    "no such tools": (("resume", "RUN", "--tools", "absent.py"), "absent.py"),
    "no such rules": (("resume", "RUN", "--rules", "absent.toml"), "absent.toml"),
    "no run": (("resume",), "RUN"),
}


async def test_what_is_wrong_is_said_and_changes_nothing(folder: Path) -> None:
    async with ScriptedServer([PAYS]) as server:
        over = await waiting_run(folder, server)
        for name, (words, why) in WRONG.items():
            done = await ended(
                folder, *(word.replace("RUN", over["run"]) for word in words), *(("--base-url", server.url) if len(words) > 1 else ())
            )
            assert (name, done.code) == (name, 2)
            assert why in done.err, (name, done.err)
        assert len(server.requests) == 1
    assert "absent.db" not in names(folder)
    assert paid(folder) == []
