"""Read a rule file: return the rules with their lines, or raise the first error with its place.

Strict: an unknown key is an error. Takes linear time. Knows no tools; `rule_checks` compares rules with them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from callgate._unusable_paths import read_regular_file
from callgate.errors import UsageError
from callgate.policy.rule_checks import fact_problem
from callgate.policy.rule_conditions import as_condition, shown
from callgate.policy.rule_matching import WORDS, Rule, Word

__all__ = ["RULE_KEYS", "read_rules", "rules_text"]

RULE_KEYS: Final = frozenset({"id", "verdict", "tool", "when", "reason", "optional"})
_NAME = r"""(?:rule|"rule"|'rule')"""
_TEXTS = r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}|\'\'\'(?:[^']|'{1,2}(?!'))*+'{3,5}|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|\#[^\n]*+'''
_HEADER: Final = re.compile(rf"(?P<found>^[ \t]*\[\[[ \t]*{_NAME}[ \t]*\]\])|{_TEXTS}", re.MULTILINE | re.DOTALL)
_WRONG: Final = re.compile(rf"(?P<found>^[ \t]*(?:\[+[ \t]*)?{_NAME}[ \t]*[.=\]])|{_TEXTS}", re.MULTILINE | re.DOTALL)
"""Matches the searched text at the beginning of a line, and strings and comments, which are skipped."""


def rules_text(path: str | Path) -> str:
    """Return the text of a rule file.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        return read_regular_file(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name or its text is not valid UTF-8"
        raise UsageError(f"The rule file {path} cannot be read: {reason}. Give another.") from error


def read_rules(text: str, where: str) -> tuple[tuple[Rule, ...], Word]:
    """Return the rules and the default verdict.

    Args:
        where: The name of the text in rules and errors.

    Raises:
        UsageError: The text is not a valid rule file.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not valid TOML: {error}.") from error
    except RecursionError as error:
        raise UsageError(f"{where} cannot be read: it is nested too deeply. A rule file needs no more than two levels.") from error
    except ValueError as error:  # raised by Python's parsers of numbers and dates
        raise UsageError(f"{where} holds a number or a date that cannot be read: {error}. Write a smaller number.") from error
    unknown = table.keys() - {"default", "rule"}
    if unknown:
        raise UsageError(f"{where} has unknown keys: {', '.join(sorted(unknown))}. It takes 'default' and [[rule]] tables.")
    default = table.get("default", "allow")
    if default not in WORDS:
        raise UsageError(f"{where}: default is {shown(default)}; it must be one of 'allow', 'judge', 'ask', 'deny'.")
    items = table.get("rule", [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        place = next((f"{where}:{line}" for line in _lines(text, _WRONG)), where)
        raise UsageError(f"{place}: rule is {shown(items)}; it must be tables. Begin each rule with the line [[rule]].")
    lines = list(_lines(text, _HEADER))
    places = [f"{where}:{line}" for line in lines] if len(lines) == len(items) else [where] * len(items)
    rules = tuple(_rule(item, place) for item, place in zip(items, places, strict=True))
    _refuse_duplicates(rules)
    return rules, default


def _lines(text: str, sought: re.Pattern[str]) -> Iterator[int]:
    """Yield the number, from 1, of each line that begins with a match."""
    line, counted = 1, 0
    for match in sought.finditer(text):
        if match["found"] is not None:
            line += text.count("\n", counted, match.start())
            counted = match.start()
            yield line


def _rule(item: Mapping[str, Any], where: str) -> Rule:
    unknown = item.keys() - RULE_KEYS
    if unknown:
        raise UsageError(f"{where}: a rule has unknown keys: {', '.join(sorted(unknown))}. It takes {', '.join(sorted(RULE_KEYS))}.")
    name, verdict, tools = item.get("id"), item.get("verdict"), item.get("tool", "*")
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}: a rule has no id. Give it a short name; decisions quote it.")
    if verdict not in WORDS:
        raise UsageError(f"{where}: rule '{name}' has verdict {shown(verdict)}; it must be 'allow', 'judge', 'ask' or 'deny'.")
    patterns = (tools,) if isinstance(tools, str) else tuple(tools) if isinstance(tools, list) else ()
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise UsageError(f"{where}: rule '{name}' has tool={shown(tools)}; it must be a pattern or a list of patterns.")
    when = item.get("when", {})
    if not isinstance(when, dict):
        raise UsageError(f"{where}: rule '{name}' has when={shown(when)}; it must be a table of facts.")
    reason, optional = item.get("reason", ""), item.get("optional", False)
    if not isinstance(reason, str):
        raise UsageError(f"{where}: rule '{name}' has reason={shown(reason)}; it must be text.")
    if not isinstance(optional, bool):
        raise UsageError(f"{where}: rule '{name}' has optional={shown(optional)}; it must be true or false.")
    allows = verdict == "allow"
    conditions = tuple(as_condition(fact, value, f"{where}: rule '{name}'", allows=allows) for fact, value in when.items())
    wrong = next(filter(None, map(fact_problem, conditions)), "")
    if wrong:
        raise UsageError(f"{where}: rule '{name}' {wrong}")
    return Rule(id=name, verdict=verdict, tools=patterns, conditions=conditions, reason=reason, where=where, optional=optional)


def _refuse_duplicates(rules: tuple[Rule, ...]) -> None:
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen:
            raise UsageError(f"Rule '{rule.id}' is defined twice ({seen[rule.id].where}, {rule.where}). Rename one of them.")
        seen[rule.id] = rule
