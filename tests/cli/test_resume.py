"""`callgate resume`: the real command continues a run whose process was killed, or which waits for approval."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callgate.models.model_events import Usage
from callgate.testing import Call, Item, ScriptedServer
from tests.cli.runs import CRM, DONE, PAYS, begun_run, ended, paid, told, waiting_run

STALLS: list[Item] = ["I pay.", Call("refund", {"order": "A7", "cents": 12}), Call("wait", {"seconds": 600})]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_run_whose_process_was_killed_is_resumed(folder: Path) -> None:
    """The payment is not repeated, the call that had started is not run again, and the model is told about both."""
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
async def test_the_resume_command_can_answer_a_question(folder: Path, answer: str, effects: list[str]) -> None:
    async with ScriptedServer([PAYS, DONE]) as server:
        over = await waiting_run(folder, server)
        assert paid(folder) == []
        question = f"{over['run']}/0/0"
        done = await ended(folder, "resume", over["run"], answer, question, "--base-url", server.url, *CRM)
        assert (done.code, done.out.strip(), paid(folder)) == (0, "Done.", effects)
        again = await ended(folder, "resume", over["run"], answer, question, "--base-url", server.url, *CRM)
    assert again.code == 2
    assert paid(folder) == effects


async def test_an_unanswered_question_stays_open_after_a_resume(folder: Path) -> None:
    async with ScriptedServer([PAYS, DONE]) as server:
        over = await waiting_run(folder, server)
        done = await ended(folder, "resume", over["run"], "--base-url", server.url, *CRM)
        assert done.code == 4
        assert f"callgate resume {over['run']} --allow" in done.err
        assert (await ended(folder, "resume", over["run"], "--base-url", server.url, *CRM, "--yes")).code == 0
    assert paid(folder) == ["A7 12"]


async def test_the_summary_includes_counts_from_before_a_resume_and_counts_calls_once(folder: Path) -> None:
    """A failure in the first process, the call that needed approval, and the calls of the second process."""
    fails: list[Item] = ["I try.", Call("broken"), Call("refund", {"order": "A7", "cents": 12})]
    used: list[Item] = [*DONE, Usage(input_tokens=40, output_tokens=2)]
    async with ScriptedServer([[*fails, Usage(input_tokens=30, output_tokens=5)], [Call("broken"), Usage(input_tokens=1)], used]) as server:
        over = await waiting_run(folder, server)
        assert (over["calls"], over["failed"], over["input_tokens"]) == (2, 1, 30)
        found: Any = (await ended(folder, "log", "stats", "--json")).json
        assert {one["tool"]: one["statuses"] for one in found["tools"]} == {"broken": {"error": 1}, "refund": {"asked": 1}}
        done = await ended(folder, "resume", over["run"], "--allow", f"{over['run']}/0/1", "--base-url", server.url, *CRM, "--json")
        end = told(done, "run_ended")
    assert (end["status"], end["iterations"], end["calls"], end["failed"], end["refused"]) == ("completed", 2, 3, 2, 0)
    assert (end["input_tokens"], end["output_tokens"]) == (71, 7)
    found = (await ended(folder, "log", "stats", "--json")).json
    assert (found["calls"], found["runs"], found["failures"]) == (3, 1, {"exception": 2})
    assert {one["tool"]: one["statuses"] for one in found["tools"]} == {"broken": {"error": 2}, "refund": {"ok": 1}}


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


async def test_an_invalid_resume_command_is_explained_and_changes_nothing(folder: Path) -> None:
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
