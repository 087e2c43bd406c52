"""Rules from a TOML file. Deny beats ask beats judge beats allow, in any order; every decision names its rule, file and line.

    default = "deny"

    [[rule]]
    id = "no-large-refunds"
    verdict = "deny"
    tool = "refund"
    when = { "arguments.amount" = { above = 100 } }
    reason = "Refunds above 100 need a person. Offer a voucher instead."

A rule matches if its `tool` patterns and every condition of `when` do. A condition is a value (equal), a list (any of them), or a table of
`is`, `not`, `above`, `below`, `at_least`, `at_most`, `prefix`, `suffix`, `contains`, `glob`. An unknown fact makes deny and ask rules
match, but not allow rules. A value that is too large to judge is a deny. The file system is read and large values are compared in a thread,
within the policy's deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from callgate._option_checks import by_name
from callgate._run_in_thread import BlockingPool
from callgate.errors import UsageError
from callgate.policy.call_facts import PATH_FACTS, Facts, HasToWait, TooLarge
from callgate.policy.rule_checks import problems
from callgate.policy.rule_file import read_rules, rules_text
from callgate.policy.rule_matching import WORDS, Rule, Word
from callgate.policy.rules_for_found_paths import VisitedPaths
from callgate.protocols import Allow, Ask, Deny, JudgmentRequired, PathFilter, Verdict
from callgate.stage_types import ValidatedCall
from callgate.tools import BoundTool

__all__ = ["Rule", "Rules"]

_THREADS = 16


class Rules:
    """A policy made of rules."""

    never_waits = True

    @by_name
    def __init__(self, rules: tuple[Rule, ...], *, default: Word = "allow", where: str = "") -> None:
        self.rules = rules
        self.default = default
        self._where = where
        self._about: dict[tuple[str, ...], tuple[Rule, ...]] = {}
        """The rules about a tool, by its names."""
        self._default_name = f"default ({where})" if where else "default"
        self._pool = BlockingPool("callgate policy", _THREADS)

    @classmethod
    def load(cls, path: str | Path) -> Rules:
        """Read a rule file.

        Raises:
            UsageError: The file cannot be read or is invalid; the message names the file, the line and the error.
        """
        return cls.parse(rules_text(path), where=str(path))

    @classmethod
    def parse(cls, text: str, *, where: str = "rules") -> Rules:
        """Read rules from TOML text; `where` names it in decisions and errors."""
        rules, default = read_rules(text, where)
        return cls(rules, default=default, where=where)

    @property
    def judge_required_by(self) -> str:
        """The first rule with the verdict `judge`; empty if there is none."""
        named = [f"{rule.where}: rule '{rule.id}'" for rule in self.rules if rule.verdict == "judge"]
        return next(iter(named), self._default_name if self.default == "judge" else "")

    def check_tools(self, tools: Sequence[BoundTool]) -> None:
        """Refuse rules that can never match these tools, because of unknown names, arguments or values.

        Raises:
            UsageError: A rule can never match; the message names the first such rule with its place and the next step.
        """
        found = self.problems(tools)
        if found:
            raise UsageError(f"{found[0]}{f' ({len(found) - 1} more.)' if len(found) > 1 else ''}")

    def problems(self, tools: Sequence[BoundTool]) -> list[str]:
        """Return all errors that `check_tools` raises, in the order of the rules."""
        return problems(self.rules, tools)

    async def decide(self, call: ValidatedCall) -> Verdict:
        verdict = self.judge(call)
        return await self._pool.run(partial(self._judge, call, Facts(call))) if verdict is None else verdict

    def judge(self, call: ValidatedCall) -> Verdict | None:
        """Return the verdict, or None if it needs the file system or a large value, which `decide` handles in a thread."""
        try:
            return self._judge(call, Facts(call, may_wait=False))
        except HasToWait:
            return None

    def path_filter(self, call: ValidatedCall) -> PathFilter | None:
        """Return the check for files that this call visits besides its arguments; None if no rule uses paths."""
        rules = self._rules_about(call.tool)
        if not any(condition.fact in PATH_FACTS for rule in rules for condition in rule.conditions):
            return None
        return VisitedPaths(rules, self.default, call).allows

    def explain(self, call: ValidatedCall) -> list[tuple[Rule, bool]]:
        """Return every rule for this tool, and whether it matches this call."""
        facts = Facts(call)
        return [(rule, rule.matches(facts)) for rule in self.rules if rule.about(call.tool)]

    def _judge(self, call: ValidatedCall, facts: Facts) -> Verdict:
        for rule in self._rules_about(call.tool):
            try:
                if rule.matches(facts):
                    return rule.says(facts, call.tool.name)
            except TooLarge as error:
                return Deny(reason=f"{error}.", rule=rule.name)
        return self._by_default(call.tool.name)

    def _rules_about(self, tool: BoundTool) -> tuple[Rule, ...]:
        """Return the rules for this tool, the strictest first."""
        key = (tool.name, *tool.tool.aliases)
        rules = self._about.get(key)
        if rules is None:
            about = [rule for rule in self.rules if rule.about(tool)]
            rules = self._about[key] = tuple(sorted(about, key=lambda rule: WORDS.index(rule.verdict)))
        return rules

    def _by_default(self, tool: str) -> Verdict:
        rule = self._default_name
        match self.default:
            case "allow":
                return Allow(rule=rule)
            case "judge":
                return JudgmentRequired(rule=rule)
            case "ask":
                return Ask(question=f"May {tool} run?", rule=rule)
            case "deny":
                return Deny(reason=f"a rule forbids it ({rule}). Do not repeat the call; use another way.", rule=rule)
