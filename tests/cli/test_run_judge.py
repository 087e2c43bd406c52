"""`callgate run --judge`: a model judges calls at the terminal, and the journal contains its verdicts."""

from __future__ import annotations

from pathlib import Path

from callgate.testing import Call, ScriptedServer
from tests.cli.runs import CRM, DONE, PAYS, ended, paid, told

FINE = Call("give_verdict", {"verdict": "allow", "reason": "The user asked for it."})
WRONG = Call("give_verdict", {"verdict": "deny", "reason": "Nobody asked for a refund."})


async def test_a_judge_decides_calls_with_effects_and_its_verdict_is_logged(folder: Path) -> None:
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


async def test_a_judge_verdict_of_ask_suspends_the_call_for_approval(folder: Path) -> None:
    ask = Call("give_verdict", {"verdict": "ask", "reason": "Pay A7?"})
    async with ScriptedServer([PAYS, ask]) as server:
        (folder / "all.toml").write_text('default = "judge"')
        words = ("run", "Pay.", "--model", "any", "--base-url", server.url, "--judge", "careful", "--rules", "all.toml", *CRM, "--json")
        done = await ended(folder, *words)
    assert done.code == 4
    assert paid(folder) == []


async def test_rules_that_need_a_judge_are_refused_without_one(folder: Path) -> None:
    (folder / "all.toml").write_text('default = "judge"')
    done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", "http://127.0.0.1:9", "--rules", "all.toml", *CRM)
    assert (done.code, "--judge provider:model" in " ".join(done.err.split())) == (2, True)
    done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", "http://127.0.0.1:9", "--judge", "nobody:x y", *CRM, "--yes")
    assert "Traceback" not in done.err


async def test_an_empty_judge_or_rules_option_is_refused(folder: Path) -> None:
    """An unset variable gives an empty option, which must not mean that calls run without a judge."""
    for option in ("--judge", "--rules"):
        for value in ("", " "):
            done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", "http://127.0.0.1:9", *CRM, "--yes", option, value)
            assert (done.code, f"{option} is empty" in " ".join(done.err.split())) == (2, True)


async def test_the_suggested_resume_command_names_the_judge(folder: Path) -> None:
    async with ScriptedServer([PAYS, Call("give_verdict", {"verdict": "ask", "reason": "Pay A7?"})]) as server:
        done = await ended(folder, "run", "Pay.", "--model", "any", "--base-url", server.url, "--judge", "careful", *CRM)
    assert done.code == 4
    assert "--judge careful" in " ".join((done.out + done.err).split())
