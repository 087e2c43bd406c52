"""The rule language: deny overrides ask, ask overrides allow, every decision names its rule, and an unknown fact never allows a call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine, RawCall, Rules, Scope, Suspended, Tool, UsageError, tool
from callgate.builtins.files import FileTools
from callgate.calls import Outcome
from tests.engine_calls import call, result_of, said


@tool
async def refund(amount: object, to: str = "ann") -> str:
    """Refund."""
    return "refunded"


@tool(effect="none")
async def read(path: str) -> str:
    """Read."""
    return "text"


@tool
async def run(command: object) -> str:
    """Run."""
    return "ran"


@tool(effect="none")
async def fetch(url: str) -> str:
    """Fetch."""
    return "page"


class Anything(Tool):
    """Takes any arguments."""

    name = "anything"
    description = "Take any arguments."
    parameters = {"type": "object"}
    category = "terminal"
    requires_actor = False
    aliases = ("do_anything",)

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True}


def anything(arguments: dict[str, object]) -> RawCall:
    return RawCall(name="anything", arguments=json.dumps(arguments))


async def decide(rules: str, raw: RawCall, workspace: str = "") -> str:
    async with Engine([refund, read, run, fetch, Anything()], policies=[Rules.parse(rules, where="rules.toml")]) as engine:
        return word(await engine.call(raw, Scope(workspace=workspace)))


def word(outcome: Outcome) -> str:
    if isinstance(outcome, Suspended):
        return "ask"
    result = result_of(outcome)
    assert result.success or result.failure_class == "denied"
    return "allow" if result.success else "deny"


def rule(verdict: str, when: str, tool: str = "*", id: str = "r") -> str:
    return f'[[rule]]\nid = "{id}"\nverdict = "{verdict}"\ntool = "{tool}"\nwhen = {{ {when} }}\n'


@pytest.mark.parametrize("order", [("allow", "ask", "deny"), ("deny", "ask", "allow"), ("ask", "deny", "allow")])
async def test_deny_beats_ask_beats_allow_in_any_order(order: tuple[str, ...]) -> None:
    rules = "".join(rule(verdict, '"arguments.to" = "ann"', id=verdict) for verdict in order)
    assert await decide(rules, call("refund", amount=1)) == "deny"
    assert await decide(rules.replace('verdict = "deny"', 'verdict = "allow"'), call("refund", amount=1)) == "ask"


@pytest.mark.parametrize(("default", "expected"), [("", "allow"), ('default = "deny"\n', "deny"), ('default = "ask"\n', "ask")])
async def test_a_call_that_no_rule_matches_gets_the_default_verdict(default: str, expected: str) -> None:
    assert await decide(default + rule("deny", '"arguments.to" = "bob"'), call("refund", amount=1)) == expected


async def test_a_verdict_names_its_rule_file_and_line() -> None:
    rules = 'default = "allow"\n\n' + rule("deny", '"arguments.amount" = { above = 100 }', id="no-large")
    async with Engine([refund], policies=[Rules.parse(rules, where="team/rules.toml")]) as engine:
        denied = await said(engine, call("refund", amount=500))
        allowed = await said(engine, call("refund", amount=5))
    assert "no-large (team/rules.toml:3)" in denied.text
    assert allowed.metadata.rule == "default (team/rules.toml)"


@pytest.mark.parametrize(
    ("condition", "amount", "matches"),
    [
        ("5", 5, True),
        ("5", 5.0, True),
        ("1", True, False),
        ("[1, 2]", 2, True),
        ("[1, 2]", 3, False),
        ("{ above = 100 }", 101, True),
        ("{ above = 100 }", 100, False),
        ("{ at_least = 100, at_most = 200 }", 200, True),
        ("{ at_least = 100, at_most = 200 }", 201, False),
        ("{ below = 0 }", -1, True),
        ("{ not = 5 }", 6, True),
        ("{ not = [5, 6] }", 6, False),
        ('{ prefix = "EUR" }', "EUR 5", True),
        ('{ suffix = "5" }', "EUR 5", True),
        ('{ contains = "R " }', "EUR 5", True),
        ('{ glob = "EUR *" }', "EUR 5", True),
        ('{ glob = "EUR *" }', "USD 5", False),
    ],
)
async def test_conditions_match_argument_values(condition: str, amount: object, matches: bool) -> None:
    assert await decide(rule("deny", f'"arguments.amount" = {condition}'), call("refund", amount=amount)) == (
        "deny" if matches else "allow"
    )


@pytest.mark.parametrize("amount", ["many", None, [500], {"a": 1}, True])
async def test_a_rule_never_allows_a_value_of_an_unexpected_type(amount: object) -> None:
    """An array must not bypass a rule about numbers: a deny matches it, and an allow does not."""
    assert await decide(rule("deny", '"arguments.amount" = { above = 100 }'), call("refund", amount=amount)) == "deny"
    closed = 'default = "deny"\n' + rule("allow", '"arguments.amount" = { at_most = 100 }')
    assert await decide(closed, call("refund", amount=amount)) == "deny"


async def test_a_parameter_default_is_judged_like_a_given_argument() -> None:
    """The policy judges the value that the tool gets, so a call without `to` does not bypass a rule about it."""
    assert await decide(rule("deny", '"arguments.to" = "ann"'), call("refund", amount=1)) == "deny"


async def test_a_rule_about_a_fact_the_call_lacks_does_not_match() -> None:
    assert await decide(rule("deny", '"arguments.absent" = 1'), call("refund", amount=1)) == "allow"
    assert await decide(rule("deny", '"url.host" = "x"'), call("refund", amount=1)) == "allow"


async def test_a_rule_can_cap_the_size_of_what_is_written(tmp_path: Path) -> None:
    """The size is that in UTF-8. A call without the argument `content` has no such size."""
    cap = Rules.parse(rule("deny", '"content.bytes" = { above = 10 }', tool="write_file", id="cap"))
    async with Engine([*FileTools().tools(), Anything()], policies=[cap]) as engine:
        scope = Scope(workspace=str(tmp_path))
        given = {"ten.txt": "x" * 10, "eleven.txt": "x" * 11, "wide.txt": "é" * 6}
        words = {name: word(await engine.call(call("write_file", path=name, content=text), scope)) for name, text in given.items()}
    assert words == {"ten.txt": "allow", "eleven.txt": "deny", "wide.txt": "deny"}
    assert os.listdir(tmp_path) == ["ten.txt"]
    anywhere = rule("deny", '"content.bytes" = { above = 10 }')
    assert await decide(anywhere, anything({"content": "x" * 11})) == "deny"
    assert await decide(anywhere, anything({"text": "x" * 11})) == "allow"


async def test_rules_judge_the_resolved_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("s", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "big.bin").write_bytes(b"x" * 1000)
    outside = rule("deny", '"path.inside" = false', id="outside") + rule("deny", '"path.bytes" = { above = 500 }', id="big")
    expected = {
        "a.txt": "allow",
        "sub/../a.txt": "allow",
        "../secret.txt": "deny",
        "link": "deny",
        "big.bin": "deny",
        "/etc/passwd": "deny",
    }
    assert {path: await decide(outside, call("read", path=path), str(root)) for path in expected} == expected


async def test_a_path_without_a_workspace_is_unknown_and_denied() -> None:
    assert await decide(rule("deny", '"path.inside" = false'), call("read", path="a.txt")) == "deny"
    assert await decide('default = "deny"\n' + rule("allow", '"path.inside" = true'), call("read", path="a.txt")) == "deny"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", "allow"),
        (["git", "status"], "allow"),
        ("git status; rm -rf x", "deny"),
        ("git status && curl x", "deny"),
        ("git $(rm x)", "deny"),
        ("GIT_PAGER=x git status", "deny"),
        ("git status > x", "deny"),
        ("'git' status", "deny"),
        ("rm x", "deny"),
        ("", "deny"),
    ],
)
async def test_a_command_rule_allows_only_one_simple_command_of_literal_words(command: object, expected: str) -> None:
    rules = 'default = "deny"\n' + rule("allow", '"command.program" = "git"')
    assert await decide(rules, call("run", command=command)) == expected


@pytest.mark.parametrize(
    ("url", "private"), [("http://localhost/x", True), ("http://10.0.0.1/", True), ("http://[::1]/", True), ("https://example.com/", False)]
)
async def test_url_private_recognises_private_addresses(url: str, private: bool) -> None:
    assert await decide(rule("deny", '"url.private" = true'), call("fetch", url=url)) == ("deny" if private else "allow")


ODD_HOSTS = [
    *("2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "0x7f.1", "127.0.0.1.", "localhost.", "LOCALHOST", "intranet", "x.internal."),
    *(
        "①27.0.0.1",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "bücher.example",
        "[::127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ),
    *("[::]", "[fe80::1%25eth0]", "good.example@127.0.0.1", "127.0.0.1\\@good.example", "127.0.0.1\t", "a..example", "", "good.example%00"),
]


@pytest.mark.parametrize("host", ODD_HOSTS)
async def test_an_unusual_host_is_never_judged_as_a_plain_public_one(host: str) -> None:
    """Programs read such hosts in different ways, so the rule does not guess which host is meant."""
    raw = call("fetch", url=f"http://{host}/good.example")
    assert await decide(rule("deny", '"url.private" = true'), raw) == "deny"
    assert await decide('default = "deny"\n' + rule("allow", '"url.private" = false'), raw) == "deny"
    assert await decide('default = "deny"\n' + rule("allow", '"url.host" = { glob = "*good.example" }'), raw) == "deny"


@pytest.mark.parametrize(
    "url", ["//127.0.0.1/", "http:\\\\127.0.0.1/", "127.0.0.1:80", " http://a.example", "http:///127.0.0.1/", "about:blank"]
)
async def test_a_url_without_a_plain_host_is_never_allowed_by_its_host(url: str) -> None:
    assert await decide(rule("deny", '"url.host" = "127.0.0.1"'), call("fetch", url=url)) == "deny"
    assert await decide('default = "deny"\n' + rule("allow", '"url.private" = false'), call("fetch", url=url)) == "deny"


@pytest.mark.parametrize("url", ["https://Good.example./a?b=c d", "http://good.example:8080", "ws://good.example?x=@y#z"])
async def test_an_ordinary_url_is_judged_by_its_host(url: str) -> None:
    closed = 'default = "deny"\n' + rule("allow", '"url.host" = "good.example", "url.private" = false')
    assert await decide(closed, call("fetch", url=url)) == "allow"


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ('"arguments.opts.amount" = { above = 100 }', {"opts": {"amount": 5000}, "opts.amount": 1}),
        ('"arguments.opts.amount" = { above = 100 }', {"opts": {"amount": 1}, "opts.amount": 5000}),
        ('"arguments.opts.amount" = { above = 100 }', {"opts": [{"amount": 5000}]}),
        ('"arguments.opts.amount" = { above = 100 }', {"opts.amount": 5000}),
        ('"path.inside" = false', {"file": "/etc/passwd", "path": "in.txt"}),
        ('"path.inside" = false', {"file": "/etc/passwd", "path": None}),
        ('"url.host" = "bad.example"', {"endpoint": "http://bad.example", "url": "http://good.example"}),
        ('"command.program" = "rm"', {"argv": ["rm", "x"], "command": "ls"}),
        ('"arguments.to" = "mallory"', {"to": ["mallory"]}),
        ('"arguments.to" = ["eve", "mallory"]', {"to": {"name": "mallory"}}),
        ('"arguments.to" = { is = "mallory" }', {"to": [["mallory"]]}),
        ('"arguments.to" = { not = "ann" }', {"to": ["mallory"]}),
        ('"arguments.to" = { not = ["ann", "bob"] }', {"to": [["ann"]]}),
    ],
)
async def test_a_deny_rule_cannot_be_bypassed_by_a_second_argument_or_another_shape(
    when: str, arguments: dict[str, object], tmp_path: Path
) -> None:
    assert await decide(rule("deny", when), anything(arguments), str(tmp_path)) == "deny"


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ('"path.inside" = true', {"file": "/etc/passwd", "path": "in.txt"}),
        ('"url.host" = "good.example"', {"endpoint": "http://bad.example", "url": "http://good.example"}),
        ('"command.program" = "ls"', {"argv": ["rm", "x"], "command": "ls"}),
        ('"arguments.a.b" = 1', {"a": {"b": 2}, "a.b": 1}),
        ('"arguments.to" = { not = "mallory" }', {"to": ["mallory"]}),
    ],
)
async def test_an_allow_rule_must_match_every_argument_that_could_be_meant(when: str, arguments: dict[str, object], tmp_path: Path) -> None:
    assert await decide('default = "deny"\n' + rule("allow", when), anything(arguments), str(tmp_path)) == "deny"


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ('"path.inside" = true', {"path": "a.txt", "cwd": ".", "file": None}),
        ('"arguments.a.b" = 1', {"a": {"b": 1}, "a.b": 1}),
        ('"arguments.a.b" = 1', {"a.b": 1}),
        ('"arguments.a.1.b" = 1', {"a": [0, {"b": 1}]}),
        ('"arguments.to" = { not = "mallory" }', {"to": None}),
    ],
)
async def test_arguments_that_agree_satisfy_an_allow_rule(when: str, arguments: dict[str, object], tmp_path: Path) -> None:
    assert await decide('default = "deny"\n' + rule("allow", when), anything(arguments), str(tmp_path)) == "allow"


@pytest.mark.parametrize(
    ("condition", "items", "denied", "allowed"),
    [
        ('"mallory"', ["ann", "mallory"], True, False),
        ('"mallory"', ["ann", "bob"], False, False),
        ('["ann", "bob"]', ["ann", "bob"], True, True),
        ('["ann", "bob"]', ["ann", "eve"], True, False),
        ('{ not = "mallory" }', ["ann", "mallory"], True, False),
        ('{ not = "mallory" }', ["ann", "bob"], True, True),
        ('{ glob = "rm*" }', ["git", "status"], False, False),
        ('{ glob = "rm*" }', ["rm", "x"], True, False),
        ('{ glob = "*, *" }', ["a", "b"], False, False),
        ('{ contains = "[" }', ["a", "b"], False, False),
        ("{ above = 100 }", [5, 500], True, False),
        ("{ at_least = 1, at_most = 9 }", [0, 10], False, False),
        ('{ glob = "rm*" }', ["git", 5], True, False),
        ('{ glob = "rm*" }', ["git", ["rm"]], True, False),
        ('{ glob = "rm*" }', [], False, False),
        ('{ not = "mallory" }', [], False, False),
    ],
)
async def test_a_list_is_judged_item_by_item(condition: str, items: list[object], denied: bool, allowed: bool) -> None:
    """A deny matches if one item does. An allow matches if all items do and there is at least one. No list is compared as text."""
    raw = anything({"to": items})
    assert await decide(rule("deny", f'"arguments.to" = {condition}'), raw) == ("deny" if denied else "allow")
    assert await decide('default = "deny"\n' + rule("allow", f'"arguments.to" = {condition}'), raw) == ("allow" if allowed else "deny")


@pytest.mark.parametrize(
    ("verdict", "when", "arguments", "told"),
    [
        ("deny", '"arguments.to" = { glob = "m*" }', {"to": ["ann", "mallory"]}, "arguments.to has 'mallory' among its items"),
        ("deny", '"arguments.to" = { glob = "m*" }', {"to": [5]}, "arguments.to has 5 among its items"),
        ("deny", '"arguments.to" = { glob = "m*" }', {"to": "mal\x1b[2J\u202eory"}, "arguments.to is 'mal\\x1b[2J\\u202eory'"),
        ("deny", '"arguments.to" = { glob = "m*" }', {"to": "m" * 81}, "arguments.to is text of 81 characters"),
        ("deny", '"arguments.n" = { above = 5 }', {"n": 7.5}, "arguments.n is 7.5"),
        ("deny", '"arguments.n" = { above = 5 }', {"n": {"a": 1}}, "arguments.n is an object"),
        ("deny", '"arguments.a.b" = 5', {"a": 7}, "arguments.a.b could not be established"),
        ("deny", '"command" = { glob = "rm *" }', {"command": ["rm", "a b"]}, """command is 'rm 'a b''"""),
        ("deny", '"command" = "rm"', {"command": "rm; ls"}, "command could not be established"),
        ("deny", '"command.program" = "rm", "arguments.n" = 1', {"command": "rm x", "n": 1}, "command.program is 'rm'; arguments.n is 1"),
        ("deny", '"path.inside" = false', {"path": "/etc/passwd"}, "path.inside is false"),
        ("deny", 'path = { suffix = "passwd" }', {"path": "/etc/passwd"}, "by path)"),
        ("deny", '"url.private" = true', {"url": "http://127.0.0.1/x"}, "url.private is true"),
        ("ask", '"arguments.n" = { above = 5 }', {"n": 7}, "May anything run? (arguments.n is 7)"),
    ],
)
async def test_a_verdict_names_the_facts_it_is_based_on(
    verdict: str, when: str, arguments: dict[str, object], told: str, tmp_path: Path
) -> None:
    """Values are shown whole or only by their size, without terminal control characters, and without the target of a path."""
    async with Engine([Anything()], policies=[Rules.parse(rule(verdict, when))]) as engine:
        outcome = await engine.call(anything(arguments), Scope(workspace=str(tmp_path)))
        said = outcome.question if isinstance(outcome, Suspended) else str(result_of(outcome).error)
    assert told in said
    assert "/etc" not in said


async def test_a_custom_reason_is_shown_with_the_facts() -> None:
    rules = rule("deny", '"arguments.amount" = { above = 100 }') + 'reason = "Offer a voucher."\n'
    async with Engine([refund], policies=[Rules.parse(rules)]) as engine:
        assert "Offer a voucher. (arguments.amount is 500)" in (await said(engine, call("refund", amount=500))).text


@pytest.mark.parametrize(("words", "same"), [(["git", "status"], True), (["git status"], False), (["git", "", "status"], False)])
async def test_a_command_is_compared_word_by_word(words: list[str], same: bool) -> None:
    closed = 'default = "deny"\n' + rule("allow", 'command = "git status"')
    assert await decide(closed, call("run", command=words)) == ("allow" if same else "deny")
    assert await decide(closed, call("run", command="  git\t status ")) == "allow"


@pytest.mark.parametrize("name", ["anything", "do_anything"])
async def test_a_rule_that_names_an_alias_applies_to_its_tool(name: str) -> None:
    assert await decide('[[rule]]\nid = "r"\nverdict = "deny"\ntool = "do_anything"\n', call(name)) == "deny"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("default = 5", "default is 5"),
        ("rule = [", "not valid TOML"),
        ("defualt = 'deny'", "unknown keys: defualt"),
        ("[[rule]]\nverdict = 'deny'", "no id"),
        ("[[rule]]\nid = 'x'\nverdict = 'no'", "verdict 'no'"),
        ("[[rule]]\nid = 'x'\nverdict = 'deny'\nwhenn = {}", "unknown keys: whenn"),
        ("[[rule]]\nid = 'x'\nverdict = 'deny'\nwhen = { weather = 'bad' }", "unknown fact 'weather'"),
        ("[[rule]]\nid = 'x'\nverdict = 'deny'\nwhen = { tool = { like = 'x' } }", "unknown test 'like'"),
        ("[[rule]]\nid = 'x'\nverdict = 'deny'\nwhen = { 'path.bytes' = { above = 'x' } }", "cannot be compared"),
        ("[[rule]]\nid = 'x'\nverdict = 'deny'\n[[rule]]\nid = 'x'\nverdict = 'deny'", "defined twice"),
        ("\n[rule]\nid = 'x'\nverdict = 'deny'", r"^rules:2: rule is .* Begin each rule with the line \[\[rule\]\]"),
        ("rule = 1", "^rules:1: rule is 1; it must be tables"),
        ("rule = [1]", "^rules:1: rule is .*it must be tables"),
        ("rule.id = 'x'", "^rules:1: rule is .*it must be tables"),
        (f"a = {'[' * 5000}{']' * 5000}", "^rules cannot be read: it is nested too deeply"),
        ("[[rule]]\nid = 'x'\nverdict = 'deny'\nreason = 5", "^rules:1: .*it must be text"),
        ('[[rule]]\nid = "y"\nverdict = "deny"\nreason = """\n[[rule]]\n"""\n[["rule"]]\nid = "x"', "^rules:7: rule 'x' has verdict None"),
    ],
)
def test_an_invalid_rule_file_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Rules.parse(text)


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("{ above = nan }", "'above' is nan"),
        ("{ at_most = inf }", "'at_most' is inf"),
        ("nan", "is nan"),
        ("2020-01-01", "is datetime.date"),
        ("[]", "is an empty list"),
        ("{ not = [] }", "is an empty list"),
        ("[{ above = 5 }]", "is {'above': 5}"),
        ("[[1]]", "is [1]"),
    ],
)
def test_a_condition_that_can_never_hold_is_refused_with_its_line(condition: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Rules.parse("\n" + rule("deny", f'"arguments.x" = {condition}'), where="rules.toml")
    assert "rules.toml:2: rule 'r'" in str(caught.value) or str(caught.value).startswith("rules.toml:2: ")
    assert complaint in str(caught.value)


def test_a_missing_rule_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml"):
        Rules.load(tmp_path / "absent.toml")


@given(st.lists(st.sampled_from(["allow", "ask", "deny"]), max_size=5))
async def test_the_strictest_matching_rule_decides_in_any_order(verdicts: list[str]) -> None:
    rules = "".join(rule(verdict, '"arguments.to" = "ann"', id=f"r{n}") for n, verdict in enumerate(verdicts))
    expected = next((word for word in ("deny", "ask", "allow") if word in verdicts), "allow")
    assert await decide(rules, call("refund", amount=1)) == expected


async def test_rules_that_two_engines_share_know_the_aliases_of_each() -> None:
    def made(*aliases: str) -> Tool:
        @tool(name="get", effect="none", aliases=aliases)
        async def get(url: str) -> str:
            """Get."""
            return "page"

        return get

    rules = Rules.parse('[[rule]]\nid = "r"\nverdict = "deny"\ntool = "download"\noptional = true\n')
    async with Engine([made()], policies=[rules]) as one, Engine([made("download")], policies=[rules]) as two:
        outcomes = [await engine.call(RawCall(name="get", arguments={"url": "x"})) for engine in (one, two)]
    assert [word(outcome) for outcome in outcomes] == ["allow", "deny"]
