"""`callgate run --judge`: a model judges calls at the terminal, and the record shows what it said."""

from __future__ import annotations

from pathlib import Path

from callgate.testing import Call, ScriptedServer
from tests.cli.runs import CRM, DONE, PAYS, ended, paid, told

FINE = Call("give_verdict", {"verdict": "allow", "reason": "The user asked for it."})
WRONG = Call("give_verdict", {"verdict": "deny", "reason": "Nobody asked for a refund."})


async def test_a_judge_decides_about_calls_with_effects_and_is_in_the_log(folder: Path) -> None:
    async with ScriptedServer([PAYS, WRONG, PAYS, FINE, DONE]) as server:
        words = ("run", "Pay.", "--model", "any", "--base-url", server.url, "--judge", "careful", *CRM, "--yes", "--json")
        done = await ended(folder, *words)
        assert len(server.requests) == 5
    run = told(done, "run_ended")["run"]
    assert done.code == 0
    assert paid(folder) == ["A7 12"] or len(paid(folder)) == 1
    log = await ended(folder, "log", "show", run, "--kind", "call.verdict")
    assert "Nobody asked for a refund." in log.out
    assert "openai-compatible:careful" in log.out


async def test_the_judges_question_goes_to_the_person(folder: Path) -> None:
    ask = Call("give_verdict", {"verdict": "ask", "reason": "Pay A7?"})
    async with ScriptedServer([PAYS, ask]) as server:
        (folder / "all.toml").write_text('default = "judge"')
        words = ("run", "Pay.", "--model", "any", "--base-url", server.url, "--judge", "careful", "--rules", "all.toml", *CRM, "--json")
        done = await ended(folder, *words)
    assert done.code == 4
    assert paid(folder) == []


async def test_rules_that_want_a_judge_and_a_judge_that_is_none_are_refused_before_anything_runs(folder: Path) -> None:
    (folder / "all.toml").write_text('default = "judge"')
    done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", "http://127.0.0.1:9", "--rules", "all.toml", *CRM)
    assert (done.code, "--judge provider:model" in " ".join(done.err.split())) == (2, True)
    done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", "http://127.0.0.1:9", "--judge", "nobody:x y", *CRM, "--yes")
    assert "Traceback" not in done.err


async def test_an_empty_judge_or_file_of_rules_is_refused_and_not_left_out(folder: Path) -> None:
    """As from a variable that is not set: nothing runs unjudged for that."""
    for option in ("--judge", "--rules"):
        for value in ("", " "):
            done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", "http://127.0.0.1:9", *CRM, "--yes", option, value)
            assert (done.code, f"{option} is empty" in " ".join(done.err.split())) == (2, True)


async def test_the_command_to_go_on_with_names_the_judge(folder: Path) -> None:
    async with ScriptedServer([PAYS, Call("give_verdict", {"verdict": "ask", "reason": "Pay A7?"})]) as server:
        done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", server.url, "--judge", "careful", *CRM)
    assert done.code == 4
    assert "--judge careful" in " ".join((done.out + done.err).split())
