"""Hostile command lines under rules, through the engine's public interface: only a simple command of literal words is allowed.

Rows of the kind `argv` are not read: they are about tools that build their own argument lists, which callgate does not include.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from callgate import Answered, Engine, RawCall, Rules, Suspended, Tool, tool
from tests.corpus.input_files import build, most_ms, rows

ALLOWED = ("git status", "git log *", "git diff *", "ls *", "echo *", "cat *", "npm test")
DENIED = ("rm", "git clean *", "git push *", "curl", "wget", "sudo", "dd")
NOT_SEEN = "the rules see a command's words, not what its program makes of an option, its folder or its environment"
"""The reason why some rows of the tier `hard` are expected to fail: they need a rule for that particular program."""
HARD = {"commands-v-028", "commands-v-059", "commands-v-061"}


def policy() -> Rules:
    lines = ['default = "ask"']
    for number, command in enumerate(ALLOWED):
        lines += [
            "[[rule]]",
            f'id = "allow-{number}"',
            'verdict = "allow"',
            'tool = "run"',
            f'when = {{ command = {{ glob = "{command}" }} }}',
        ]
    for number, command in enumerate(DENIED):
        fact, test = ("command", f'{{ glob = "{command}" }}') if " " in command else ("command.program", f'"{command}"')
        lines += ["[[rule]]", f'id = "deny-{number}"', 'verdict = "deny"', 'tool = "run"', f"when = {{ {fact!r} = {test} }}"]
    return Rules.parse("\n".join(lines))


def running(ran: list[object]) -> Tool:
    @tool
    async def run(command: str | list[str], cwd: str = ".", env: dict[str, str] | None = None) -> str:
        """Run a command."""
        ran.append(command)
        return "ran"

    return run


def expected(name: str) -> list[Any]:
    marked = []
    for parameter in rows(name, kind="command"):
        (row,) = parameter.values
        hard = row.get("id") in HARD
        marked.append(pytest.param(row, id=parameter.id, marks=[*parameter.marks, *([_hard()] if hard else [])]))
    return marked


def _hard() -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=NOT_SEEN, strict=True)


@pytest.mark.parametrize("row", expected("hostile/commands.jsonl"))
async def test_a_hostile_command_gets_the_expected_verdict(row: dict[str, Any]) -> None:
    ran: list[object] = []
    given: dict[str, object] = {name: row[name] for name in ("cwd", "env") if name in row}
    async with Engine([running(ran)], policies=[policy()]) as engine:
        began = time.perf_counter()
        outcome = await engine.call(RawCall(name="run", arguments={"command": build(row["command"]), **given}))
        took_ms = (time.perf_counter() - began) * 1000
    word = "ask" if isinstance(outcome, Suspended) else "allow" if ran else "deny"
    if word == "deny":
        assert isinstance(outcome, Answered)
        assert outcome.result.failure_class == "denied"
    assert word in row["expect"]["result"]
    assert took_ms <= most_ms(row)
