"""Rules from a TOML file: deny beats ask beats allow, whatever their order; every decision names its rule, file and line.

    default = "deny"

    [[rule]]
    id = "no-large-refunds"
    verdict = "deny"
    tool = "refund"
    when = { "arguments.amount" = { above = 100 } }
    reason = "Refunds above 100 need a person. Offer a voucher instead."

A rule matches if its `tool` patterns and every condition of `when` do. A condition is a value (equal), a list (any of them), or a table
of `is`, `not`, `above`, `below`, `at_least`, `at_most`, `prefix`, `suffix`, `contains`, `glob`. A fact that cannot be established makes
deny and ask rules match and allow rules not. The file is read strictly: an unknown key is an error, never ignored.
"""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from callgate.errors import UsageError
from callgate.policy.facts import ARGUMENTS, FACTS, MISSING, UNKNOWN, Facts
from callgate.protocols import Allow, Ask, Deny, Verdict
from callgate.route import ValidatedCall
from callgate.tools import BoundTool

__all__ = ["Rule", "Rules"]

Word = Literal["allow", "ask", "deny"]
_WORDS: tuple[Word, ...] = ("deny", "ask", "allow")
_RULE_KEYS = frozenset({"id", "verdict", "tool", "when", "reason"})
_HEADER = re.compile(r"""^[ \t]*\[\[[ \t]*(?:rule|"rule"|'rule')[ \t]*\]\]""", re.MULTILINE)
_WRONG = re.compile(r"""^[ \t]*(?:\[+[ \t]*)?(?:rule|"rule"|'rule')[ \t]*[.=\]]""", re.MULTILINE)
_MAX_SHOWN = 80


Test = Callable[[object], bool | None]
"""None where the value is of a kind the test cannot judge; that counts as a fact that cannot be established."""


class Condition(Struct, frozen=True):
    """One test of one fact."""

    fact: str
    test: Test
    argument: str | None = None
    """The argument that the fact is, where it is one without dots: read without being worked out."""


class Rule(Struct, frozen=True, kw_only=True):
    """One rule, read and checked."""

    id: str
    verdict: Word
    tools: tuple[str, ...]
    conditions: tuple[Condition, ...]
    reason: str
    where: str
    """`file:line` of its header."""

    @property
    def name(self) -> str:
        return f"{self.id} ({self.where})"

    def about(self, tool: BoundTool) -> bool:
        """Whether the rule names this tool: by a pattern of its name, or in full by one of its aliases."""
        return any(fnmatchcase(tool.name, pattern) or pattern in tool.tool.aliases for pattern in self.tools)

    def matches(self, facts: Facts) -> bool:
        for condition in self.conditions:
            name = condition.argument
            value = facts.get(condition.fact) if name is None else facts.arguments.get(name, MISSING)
            if value is MISSING:
                return False
            held = None if value is UNKNOWN else condition.test(value)
            if held is False or (held is None and self.verdict == "allow"):
                return False
        return True


class Rules:
    """A policy made of rules."""

    never_waits = True

    def __init__(self, rules: tuple[Rule, ...], *, default: Word = "allow", where: str = "") -> None:
        self.rules = rules
        self.default = default
        self._where = where
        self._about: dict[str, tuple[Rule, ...]] = {}
        """The rules about each tool, the strictest first."""
        self._allow = Allow(rule=f"default ({where})" if where else "default")

    @classmethod
    def load(cls, path: str | Path) -> Rules:
        """Read a rule file.

        Raises:
            UsageError: It cannot be read, or is not a valid rule file; names the file, the line and what is wrong.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The rule file {path} cannot be read: {error}.") from error
        return cls.parse(text, where=str(path))

    @classmethod
    def parse(cls, text: str, *, where: str = "rules") -> Rules:
        """Read rules from TOML text; `where` names it in decisions and errors."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{where} is not valid TOML: {error}.") from error
        except RecursionError as error:
            raise UsageError(f"{where} cannot be read: it is nested too deeply. A rule file needs no more than two levels.") from error
        unknown = table.keys() - {"default", "rule"}
        if unknown:
            raise UsageError(f"{where} has unknown keys: {', '.join(sorted(unknown))}. It takes 'default' and [[rule]] tables.")
        default = table.get("default", "allow")
        if default not in _WORDS:
            raise UsageError(f"{where}: default is {_shown(default)}; it must be one of 'allow', 'ask', 'deny'.")
        items = table.get("rule", [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            place = next((f"{where}:{_line(text, match)}" for match in _WRONG.finditer(text) if _is_code(text, match)), where)
            raise UsageError(f"{place}: rule is {_shown(items)}; it must be tables. Begin each rule with the line [[rule]].")
        lines = [_line(text, match) for match in _HEADER.finditer(text) if _is_code(text, match)]
        places = [f"{where}:{line}" for line in lines] if len(lines) == len(items) else [where] * len(items)
        rules = tuple(_rule(item, place) for item, place in zip(items, places, strict=True))
        _refuse_duplicates(rules)
        return cls(rules, default=default, where=where)

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.judge(call)

    def judge(self, call: ValidatedCall) -> Verdict:
        """The same at once: rules have nothing to wait for."""
        rules = self._about.get(call.tool.identity)
        if rules is None:
            about = [rule for rule in self.rules if rule.about(call.tool)]
            rules = self._about[call.tool.identity] = tuple(sorted(about, key=lambda rule: _WORDS.index(rule.verdict)))
        if rules:
            facts = Facts(call)
            for rule in rules:
                if rule.matches(facts):
                    return _verdict(rule.verdict, call, rule.reason, rule.name)
        return self._allow if self.default == "allow" else _verdict(self.default, call, "", self._allow.rule)

    def explain(self, call: ValidatedCall) -> list[tuple[Rule, bool]]:
        """Every rule about this tool, and whether it matches this call."""
        facts = Facts(call)
        return [(rule, rule.matches(facts)) for rule in self.rules if rule.about(call.tool)]


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def _is_code(text: str, match: re.Match[str]) -> bool:
    """Whether the match is no part of a text of several lines: what stands before it is then complete TOML."""
    if '"""' not in text and "'''" not in text:
        return True
    try:
        tomllib.loads(text[: match.start()])
    except tomllib.TOMLDecodeError:
        return False
    return True


def _shown(value: object) -> str:
    found = repr(value)
    return found if len(found) <= _MAX_SHOWN else found[:_MAX_SHOWN] + "…"


def _verdict(word: Word, call: ValidatedCall, reason: str, rule: str) -> Verdict:
    match word:
        case "allow":
            return Allow(rule=rule)
        case "ask":
            return Ask(question=reason or f"May {call.tool.name} run?", rule=rule)
        case "deny":
            return Deny(reason=reason or f"a rule forbids it ({rule}). Do not repeat the call; use another way.", rule=rule)


def _rule(item: Mapping[str, Any], where: str) -> Rule:
    unknown = item.keys() - _RULE_KEYS
    if unknown:
        raise UsageError(f"{where}: a rule has unknown keys: {', '.join(sorted(unknown))}. It takes {', '.join(sorted(_RULE_KEYS))}.")
    name, verdict, tools = item.get("id"), item.get("verdict"), item.get("tool", "*")
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}: a rule has no id. Give it a short name; decisions quote it.")
    if verdict not in _WORDS:
        raise UsageError(f"{where}: rule '{name}' has verdict {_shown(verdict)}; it must be 'allow', 'ask' or 'deny'.")
    patterns = (tools,) if isinstance(tools, str) else tuple(tools) if isinstance(tools, list) else ()
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise UsageError(f"{where}: rule '{name}' has tool={_shown(tools)}; it must be a pattern or a list of patterns.")
    when = item.get("when", {})
    if not isinstance(when, dict):
        raise UsageError(f"{where}: rule '{name}' has when={_shown(when)}; it must be a table of facts.")
    reason = item.get("reason", "")
    if not isinstance(reason, str):
        raise UsageError(f"{where}: rule '{name}' has reason={_shown(reason)}; it must be text.")
    conditions = tuple(_condition(fact, value, f"{where}: rule '{name}'") for fact, value in when.items())
    return Rule(id=name, verdict=verdict, tools=patterns, conditions=conditions, reason=reason, where=where)


def _refuse_duplicates(rules: tuple[Rule, ...]) -> None:
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen:
            raise UsageError(f"Rule '{rule.id}' is defined twice ({seen[rule.id].where}, {rule.where}). Rename one of them.")
        seen[rule.id] = rule


def _condition(fact: str, value: object, where: str) -> Condition:
    if fact not in FACTS and not fact.startswith(ARGUMENTS):
        raise UsageError(f"{where} asks for the unknown fact '{fact}'. Facts: arguments.NAME, {', '.join(FACTS)}.")
    if isinstance(value, dict):
        tests = [_test(word, operand, where) for word, operand in value.items()]
        if not tests:
            raise UsageError(f"{where} has an empty condition for '{fact}'.")
        return Condition(fact, tests[0] if len(tests) == 1 else lambda actual: _all(test(actual) for test in tests), _plain_name(fact))
    _check_operand(value, f"{where}: the condition for '{fact}'")
    return Condition(fact, _among(value) if isinstance(value, list) else _is(value), _plain_name(fact))


def _plain_name(fact: str) -> str | None:
    name = fact.removeprefix(ARGUMENTS)
    return name if name != fact and "." not in name else None


def _check_operand(value: object, what: str) -> None:
    """A value that nothing can be compared with makes a rule that never matches, or always: refused, like an unknown key."""
    items = value if isinstance(value, list) else [value]
    if not items:
        raise UsageError(f"{what} is an empty list, which nothing can be one of. Name at least one value, or drop the condition.")
    for item in items:
        if not isinstance(item, _SCALAR) or (isinstance(item, float) and not math.isfinite(item)):
            raise UsageError(f"{what} is {_shown(item)}; it must be text, a finite number, true or false, or a list of these.")


def _all(found: Iterable[bool | None]) -> bool | None:
    """True if all hold, False if one does not, None if nobody can tell."""
    held = list(found)
    return False if False in held else None if None in held else True


def _test(word: str, operand: Any, where: str) -> Test:
    if word not in _TESTS:
        raise UsageError(f"{where} uses the unknown test '{word}'. Tests: {', '.join(_TESTS)}.")
    expected, test_of = _TESTS[word]
    if not isinstance(operand, expected) or (isinstance(operand, bool) and word not in ("is", "not")):
        raise UsageError(f"{where}: '{word}' cannot be compared with {_shown(operand)}.")
    _check_operand(operand, f"{where}: the value of '{word}'")
    return test_of(operand)


def _same(actual: object, expected: object) -> bool | None:
    """Equal as JSON values: 1 is 1.0, but true is not 1. A list or an object is not judged: what is meant may be inside it."""
    if isinstance(actual, (list, Mapping)):
        return None
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    return actual == expected


def _is(expected: object) -> Test:
    return lambda actual: _same(actual, expected)


def _among(expected: list[object]) -> Test:
    def held(actual: object) -> bool | None:
        found = [_same(actual, item) for item in expected]
        return None if None in found else True in found

    return held


def _differs(other: object) -> Test:
    held = _among(other) if isinstance(other, list) else _is(other)

    def differs(actual: object) -> bool | None:
        found = held(actual)
        return None if found is None else not found

    return differs


def _number(compare: Callable[[float, float], bool]) -> Callable[[Any], Test]:
    return lambda bound: (
        lambda actual: compare(actual, bound) if isinstance(actual, (int, float)) and not isinstance(actual, bool) else None
    )


def _string(compare: Callable[[str, str], bool]) -> Callable[[Any], Test]:
    return lambda text: lambda actual: compare(actual, text) if isinstance(actual, str) else None


_SCALAR = (str, int, float, bool)
_TESTS: dict[str, tuple[Any, Callable[[Any], Test]]] = {
    "is": (_SCALAR, _is),
    "not": ((*_SCALAR, list), _differs),
    "above": ((int, float), _number(operator.gt)),
    "below": ((int, float), _number(operator.lt)),
    "at_least": ((int, float), _number(operator.ge)),
    "at_most": ((int, float), _number(operator.le)),
    "prefix": (str, _string(str.startswith)),
    "suffix": (str, _string(str.endswith)),
    "contains": (str, _string(operator.contains)),
    "glob": (str, _string(fnmatchcase)),
}
"""Each word: what it may be compared with, and the test that this makes."""
