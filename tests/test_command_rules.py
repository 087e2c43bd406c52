"""Rules about commands see through the programs that run others, and never allow a program by another one's name."""

from __future__ import annotations

import pytest

from callgate import Engine, Rules, Suspended, tool
from callgate.calls import Outcome
from tests.engine_calls import call, result_of

CLOSED = 'default = "deny"\n'
RUNNERS = [
    *("time rm x", "exec rm x", "command -p rm x", "builtin rm x", "nohup rm x", "nice -n 5 rm x", "timeout -k 1 5 rm x", "setsid -w rm x"),
    *("sudo -u ann rm x", "stdbuf -oL rm x", "busybox rm x", "env -i A=1 rm x", "env -S rm x", "/usr/bin/env rm x", "xargs -n 1 rm x"),
    *("time nice sudo rm x", "bash -c rm x", "eval rm x", "trap rm EXIT"),
    *(["bash", "-c", "rm x"], ["bash", "-lc", "rm x; ls"], ["timeout", "5", "sh", "-c", "rm x"], ["eval", "rm x"], ["sh", "-c", "$X x"]),
    *(["env", "-S", "rm x"], ["env", "-Srm x"], ["env", "-iSrm", "x"], ["env", "--split-string=rm", "x"], ["su", "-crm"]),
    ["find", ".", "-exec", "rm", "{}", ";"],
]


@tool
async def run(command: object) -> str:
    """Run a command."""
    return "ran"


def rule(verdict: str, when: str) -> str:
    return f'[[rule]]\nid = "{verdict}"\nverdict = "{verdict}"\nwhen = {{ {when} }}\n'


async def outcome_of(rules: str, command: object) -> Outcome:
    async with Engine([run], policies=[Rules.parse(rules)]) as engine:
        return await engine.call(call("run", command=command))


async def decide(rules: str, command: object) -> str:
    outcome = await outcome_of(rules, command)
    if isinstance(outcome, Suspended):
        return "ask"
    return "allow" if result_of(outcome).status == "ok" else "deny"


@pytest.mark.parametrize("command", [*RUNNERS, "/bin/rm x", ["./rm", "x"], "\\rm x", "r''m x", "$(echo rm) x"], ids=str)
async def test_a_deny_and_an_ask_rule_about_a_program_apply_wherever_a_command_runs_it(command: object) -> None:
    assert await decide(rule("deny", '"command.program" = "rm"'), command) == "deny"
    assert await decide(rule("ask", '"command.program" = "rm"'), command) == "ask"


@pytest.mark.parametrize("command", ["sudo rm x", "/bin/rm x", "timeout 5 rm x", ["bash", "-c", "rm x"]], ids=str)
async def test_a_deny_rule_about_a_whole_command_applies_wherever_another_one_runs_it(command: object) -> None:
    for test in ('"rm x"', '{ prefix = "rm " }', '{ glob = "rm *" }'):
        assert await decide(rule("deny", f"command = {test}"), command) == "deny"


@pytest.mark.parametrize("command", RUNNERS, ids=str)
async def test_an_allow_rule_about_a_program_does_not_allow_what_that_program_runs(command: str | list[str]) -> None:
    first = command.split(" ")[0] if isinstance(command, str) else command[0]
    assert await decide(CLOSED + rule("allow", f'"command.program" = "{first}"'), command) == "deny"


async def test_an_allow_rule_about_the_whole_command_allows_it_whatever_it_runs() -> None:
    assert await decide(CLOSED + rule("allow", 'command = "timeout 60 pytest -q"'), "timeout 60 pytest -q") == "allow"
    assert await decide(rule("deny", 'command = { not = ["timeout 60 pytest -q", "ls"] }'), "timeout 60 pytest -q") == "allow"


@pytest.mark.parametrize(
    "command", ["ls rm", "grep rm x", "find . -name rm", "time ls", "bash rm.sh", "env", "rmdir x", ["echo", "rm x"]], ids=str
)
async def test_a_deny_rule_about_a_program_leaves_other_commands_alone(command: object) -> None:
    assert await decide(rule("deny", '"command.program" = "rm"'), command) == "allow"


async def test_a_command_that_runs_others_and_has_too_many_words_is_denied() -> None:
    assert await decide(rule("deny", 'command = "rm x"'), ["timeout", "5", "ls", *"a" * 200]) == "deny"
    assert await decide(rule("deny", 'command = "rm x"'), ["ls", *"a" * 200]) == "allow"


async def test_a_denial_names_the_program_within_the_command() -> None:
    outcome = await outcome_of(rule("deny", '"command.program" = "rm"'), "sudo rm x")
    assert "command.program has 'rm' among its items" in result_of(outcome).text


@pytest.mark.parametrize(
    ("prefix", "command", "allowed"),
    [
        ("git log", "git log", True),
        ("git log", "git log --oneline", True),
        ("git log", "git logx", False),
        ("git log", "git log-x", False),
        ("git log", "git log/x", False),
        ("git log ", "git log --oneline", True),
        ("pytest tests/", "pytest tests/unit", True),
        ("make TARGET=", "make TARGET=all", True),
    ],
)
async def test_the_prefix_that_an_allow_rule_has_for_a_command_ends_at_the_end_of_a_word(prefix: str, command: str, allowed: bool) -> None:
    rules = CLOSED + rule("allow", f'command = {{ prefix = "{prefix}" }}')
    assert await decide(rules, command) == ("allow" if allowed else "deny")
    assert await decide(rule("deny", f'command = {{ prefix = "{prefix}" }}'), command) == "deny"
