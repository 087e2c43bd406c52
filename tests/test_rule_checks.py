"""A rule that can never match is refused: it would silently let through what it was written to stop."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from callgate import Engine, RawCall, Rules, Scope, Tool, UsageError, tool
from callgate.agent import Agent
from callgate.builtins import command_tools, fetch_tool, workspace_tools
from callgate.policy import careful
from callgate.testing import ScriptedModel
from callgate.tools import BoundTool
from tests.cli.shell import shell
from tests.engine_calls import call, said


class Currency(Enum):
    EUR = "EUR"
    USD = "USD"


@tool
async def refund(
    cents: int,
    order: str = "",
    currency: Currency = Currency.EUR,
    speed: Literal["fast", "slow"] = "slow",
    rate: float = 1.0,
    urgent: bool = False,
    to: list[str] | None = None,
    opts: dict[str, int] | None = None,
) -> str:
    """Refund."""
    return "refunded"


@tool(effect="none")
async def lookup(order: str) -> str:
    """Look up."""
    return order


class Silent(Tool):
    """A tool whose schema does not say whether it takes other arguments."""

    name = "silent"
    description = "Takes an address."
    parameters: Any = {
        "type": "object",
        "properties": {"address": {"$ref": "#/$defs/address"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
        "$defs": {
            "address": {"type": "object", "properties": {"city": {"enum": ["Rome", "Bonn"]}, "zip": {"type": ["integer", "null"]}}},
            "line": {"type": "object", "properties": {"amount": {"type": "number"}}, "additionalProperties": False},
        },
    }
    category = "terminal"
    requires_actor = False
    aliases = ("quiet",)

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True}


class Open(Tool):
    """A tool that takes arguments which its schema does not name."""

    name = "open"
    description = "Takes anything."
    parameters: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    category = "terminal"
    requires_actor = False


TOOLS = [refund, lookup, Silent(), Open()]


def rule(when: str = "", tool: str = '"refund"', verdict: str = "deny", more: str = "") -> str:
    return f'\n[[rule]]\nid = "r"\nverdict = "{verdict}"\ntool = {tool}\nwhen = {{ {when} }}\n{more}'


def made(rules: str, tools: Sequence[Tool] = TOOLS) -> Engine:
    return Engine(tools, policies=[Rules.parse(rules, where="rules.toml")])


WRONG = [
    (rule(tool='"refnd"'), "is about 'refnd', and no tool that is registered has such a name; did you mean 'refund'?"),
    (rule(tool='["refund", "lokup"]'), "is about 'lokup', and no tool that is registered has such a name; did you mean 'lookup'?"),
    (rule(tool='"refund_*"'), "is about 'refund_*', and no tool"),
    (rule(tool='"Refund"'), "is about 'Refund'"),
    (rule(tool='"*"', when='tool = "refnd"'), "is about 'refnd'"),
    (rule(tool='"*"', when='tool = { not = ["refund", "lokup"] }'), "is about 'lokup'"),
    (rule('"arguments.cent" = 5'), "asks for arguments.cent, which refund does not take; did you mean 'cents'?"),
    (rule('"arguments.cent" = "5"', tool='"*"'), None),
    (rule('"arguments.amuont" = 5', tool='["refund", "lookup"]'), "asks for arguments.amuont, which refund does not take"),
    (rule('"arguments.cents" = 5', tool='["refund", "lookup"]'), "asks for arguments.cents, which lookup does not take"),
    (rule('"arguments.cents" = { above = 5 }', tool='"look*"'), "asks for arguments.cents, which lookup does not take"),
    (rule('"arguments.cents" = "x"'), "compares arguments.cents of refund with 'x' ('is'), which cannot hold: it is an integer."),
    (rule('"arguments.cents" = { not = "x" }'), "compares arguments.cents of refund with 'x' ('not')"),
    (rule('"arguments.cents" = [1, "x"]'), "compares arguments.cents of refund with 'x'"),
    (rule('"arguments.cents" = { prefix = "x" }'), "compares arguments.cents of refund with 'x' ('prefix')"),
    (rule('"arguments.cents" = 5.5'), "with 5.5 ('is'), which cannot hold: it is an integer"),
    (rule('"arguments.cents" = true'), "with true ('is')"),
    (rule('"arguments.order" = 5'), "with 5 ('is'), which cannot hold: it is a string"),
    (rule('"arguments.order" = { above = 5 }'), "with 5 ('above')"),
    (rule('"arguments.currency" = "GBP"'), "with 'GBP' ('is'), which cannot hold: it is one of 'EUR', 'USD'"),
    (rule('"arguments.currency" = { glob = "G*" }'), "with 'G*' ('glob')"),
    (rule('"arguments.speed" = ["fast", "quick"]'), "with 'quick' ('is'), which cannot hold: it is one of 'fast', 'slow'"),
    (rule('"arguments.urgent" = "yes"'), "it is a boolean"),
    (rule('"arguments.urgent" = 1'), "it is a boolean"),
    (rule('"arguments.to" = 5'), "it is a list of items, each a string or null"),
    (rule('"arguments.opts" = "x"'), "it is an object or null. Correct the value, or name a member, as arguments.opts.NAME"),
    (rule('"arguments.opts.a" = "x"'), "it is an integer"),
    (rule('"arguments.order.id" = "x"'), "asks for arguments.order.id, which refund does not take"),
    (rule('"arguments.addres" = "x"', tool='"silent"'), "asks for arguments.addres, which silent does not take; did you mean 'address'?"),
    (rule('"arguments.address.town" = "x"', tool='"quiet"'), "asks for arguments.address.town"),
    (rule('"arguments.address.city" = "Paris"', tool='"silent"'), "it is one of 'Rome', 'Bonn'"),
    (rule('"arguments.address.zip" = "53111"', tool='"silent"'), "it is an integer or null"),
    (rule('"arguments.lines.0.amout" = 5', tool='"silent"'), "asks for arguments.lines.0.amout"),
    (rule('"arguments.lines.0.amount" = "5"', tool='"silent"'), "it is a number"),
    (rule('"arguments.a" = "5"', tool='"open"'), "it is an integer"),
    (rule('"arguments.b" = 5', tool='"open"'), "it is a string"),
    (rule('"path.inside" = true'), "asks for the fact path.inside, which refund never has"),
    (rule('"url.host" = "x"', tool='["lookup"]'), "asks for the fact url.host, which lookup never has"),
]


@pytest.mark.parametrize(("rules", "complaint"), WRONG)
def test_a_rule_that_can_never_match_is_refused_at_engine_construction(rules: str, complaint: str | None) -> None:
    if complaint is None:  # `open` may take this argument
        made(rules)
        rules, complaint = rules, "which none of the tools it is about takes"
        with pytest.raises(UsageError, match="takes"):
            made(rules, [refund, lookup])
        return
    with pytest.raises(UsageError) as caught:
        made(rules)
    assert str(caught.value).startswith("rules.toml:2: rule 'r' ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        ('effect = "non"', "compares effect with 'non' ('is'), which cannot hold: it is one of 'none', 'idempotent', 'once'; did you mean"),
        ('category = { prefix = "x" }', "compares category with 'x'"),
        ('layer = ["builtin", "plugin"]', "compares layer with 'plugin'"),
        ('"path.inside" = "true"', "compares path.inside with 'true' ('is'), which cannot hold: it is a boolean"),
        ('"path.inside" = 1', "it is a boolean"),
        ('"path.bytes" = "5"', "it is an integer"),
        ('"path.bytes" = { glob = "5*" }', "it is an integer"),
        ("path = { above = 5 }", "it is a string"),
        ('path = "/etc/passwd"', "relative to the workspace"),
        ('path = { glob = "./secrets/*" }', "relative to the workspace"),
        ('path = "secrets/"', "never ends with '/'"),
        ('"url.host" = "Example.com"', "lower-case"),
        ('"url.host" = "example.com/a"', "the host alone"),
        ('"url.scheme" = "https:"', "the scheme alone"),
        ('"command.program" = "git push"', "it is one word"),
        ('"arguments." = 1', "unknown fact 'arguments.'"),
    ],
)
def test_a_value_that_a_fact_never_has_is_refused_when_rules_are_parsed(when: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Rules.parse(rule(when, tool='"*"'), where="rules.toml")
    assert str(caught.value).startswith("rules.toml:2: rule 'r' ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "rules",
    [
        rule('"arguments.cents" = { above = 100, at_most = 200.5 }'),
        rule('"arguments.cents" = 5.0'),
        rule('"arguments.rate" = [1, 2.5]'),
        rule('"arguments.currency" = { prefix = "E" }'),
        rule('"arguments.to" = { glob = "*@evil.example" }'),
        rule('"arguments.opts.anything" = 5'),
        rule('"arguments.cents" = 5', tool='"*"'),
        rule('"arguments.order" = "A7"', tool='["refund", "look*"]'),
        rule('"arguments.address.city" = "Rome"', tool='"quiet"'),
        rule('"arguments.lines.3.amount" = { above = 5 }', tool='"silent"'),
        rule('"arguments.b" = "x"', tool='"open"'),
        rule('"path.inside" = false', tool='"*"'),
        rule('"url.host" = "x"', tool='"*"'),
        rule(tool='"*"', when='tool = "refund"'),
        rule(tool='"nothing_here"', more="optional = true\n"),
        rule('"arguments.x" = "x"', tool='"nothing_*"', more="optional = true\n"),
        rule(tool='"*"', when='tool = "refnd"', more="optional = true\n"),
        "",
    ],
)
def test_a_rule_that_can_match_is_accepted(rules: str) -> None:
    made(rules)


def test_an_optional_rule_is_checked_when_its_tool_is_registered() -> None:
    rules = rule('"arguments.cents" = { above = "x" }'.replace('"x"', "5"), more="optional = true\n") + rule(
        '"arguments.ordr" = "A7"', tool='"lookup"', more="optional = true\n"
    ).replace('"r"', '"s"')
    engine = made(rules, [])
    engine.register(refund)
    with pytest.raises(UsageError, match=r"arguments\.ordr, which lookup does not take; did you mean 'order'"):
        engine.register(lookup)
    assert engine.tools.names() == ["refund"]


async def test_a_tool_that_fails_a_rule_check_is_not_registered() -> None:
    rules = rule('"arguments.x" = "x"', tool='"quiet"', more="optional = true\n")
    async with made(rules, []) as engine:
        with pytest.raises(UsageError, match=r"arguments\.x, which silent does not take"):
            engine.tools.register(Silent(), layer="mcp")
        assert (await said(engine, call("quiet"))).failure_class == "unknown_tool"
        engine.register(lookup)
        assert (await said(engine, call("lookup", order="A7"))).success


def test_an_error_counts_the_remaining_rule_problems() -> None:
    with pytest.raises(UsageError, match=r"'refnd'.*\(1 more\.\)$"):
        made(rule(tool='"refnd"') + rule('"arguments.x" = 1').replace('"r"', '"s"'))


def test_an_agent_cannot_be_made_with_rules_that_can_never_match() -> None:
    with pytest.raises(UsageError, match="refnd"):
        Agent(ScriptedModel([]), made(rule(tool='"refnd"')))


def test_the_default_rules_of_callgate_run_pass_the_check_for_any_tools() -> None:
    for tools in ([], [refund], [*workspace_tools(), *command_tools(), fetch_tool()]):
        Engine(tools, policies=[careful()])


class Own:
    """A custom policy that checks which tools are registered."""

    def check_tools(self, tools: Sequence[BoundTool]) -> None:
        if "pay" not in {tool.name for tool in tools}:
            raise UsageError("This policy is about 'pay', which is not registered.")

    async def decide(self, call: object) -> Any: ...


def test_a_custom_policy_can_check_the_tools() -> None:
    with pytest.raises(UsageError, match="about 'pay'"):
        Engine([refund], policies=[Own()])


def test_callgate_rules_check_validates_a_rule_file_against_tools(tmp_path: Path) -> None:
    good, bad, broken = tmp_path / "good.toml", tmp_path / "bad.toml", tmp_path / "broken.toml"
    good.write_text(rule('"path.inside" = false', tool='"read_file"'), encoding="utf-8")
    bad.write_text(rule(tool='"reed_file"') + rule('"arguments.x" = 1', tool='"read_file"').replace('"r"', '"s"'), encoding="utf-8")
    broken.write_text("[[rule]]\nid = 5", encoding="utf-8")
    (tmp_path / "crm.py").write_text("from callgate import tool\n\n\n@tool\ndef pay(cents: int) -> str:\n    'Pay.'\n    return 'paid'\n")
    checked = {name: shell(tmp_path, "rules", "check", f"{name}.toml") for name in ("good", "bad", "broken", "absent")}
    assert {name: done.code for name, done in checked.items()} == {"good": 0, "bad": 1, "broken": 1, "absent": 2}
    assert "good.toml: 1 rules hold for" in checked["good"].out
    assert "did you mean 'read_file'" in checked["bad"].err
    assert "arguments.x, which read_file does not take" in checked["bad"].err
    assert "absent.toml cannot be read" in checked["absent"].err
    good.write_text(rule('"arguments.cents" = 5', tool='"pay"'), encoding="utf-8")
    assert shell(tmp_path, "rules", "check", "good.toml").code == 1
    told = shell(tmp_path, "rules", "check", "good.toml", "--tools", "crm.py", "--json")
    assert told.json == {"file": "good.toml", "rules": 1, "tools": ["pay"], "problems": []}


def test_the_command_line_makes_no_call_with_rules_that_can_never_match(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(rule(tool='"reed_file"'), encoding="utf-8")
    done = shell(tmp_path, "call", "list_files", "--policy", "rules.toml")
    assert done.code == 2
    assert "did you mean 'read_file'" in done.err
    assert done.out == ""


async def test_a_checked_rule_still_decides_calls() -> None:
    async with made(rule('"arguments.cents" = { above = 100 }')) as engine:
        outcome = await engine.call(RawCall(name="refund", arguments='{"cents": 500}'), Scope())
        assert "arguments.cents is 500" in str(outcome)


def test_a_rule_file_with_an_unreadable_number_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"^pay\.toml holds a number or a date that cannot be read"):
        Rules.parse(
            '[[rule]]\nid = "r"\nverdict = "deny"\nwhen = { "arguments.cents" = { above = ' + "9" * 5_000 + " } }", where="pay.toml"
        )
