"""One rule: the tools it applies to, whether it matches a call, and its verdict."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from callgate._globs import glob_regex
from callgate.policy.call_facts import MISSING, Facts, HasToWait, TooLarge
from callgate.policy.rule_conditions import Condition
from callgate.protocols import Allow, Ask, Deny, JudgmentRequired, Verdict
from callgate.tools import BoundTool

__all__ = ["WORDS", "Rule", "Word", "names"]

Word = Literal["allow", "judge", "ask", "deny"]
WORDS: Final[tuple[Word, ...]] = ("deny", "ask", "judge", "allow")
"""The verdicts, the strictest first."""
_MAX_TOLD = 5
_WILD = frozenset("*?[")


class Rule(Struct, frozen=True, kw_only=True):
    """One rule of a file."""

    id: str
    verdict: Word
    tools: tuple[str, ...]
    conditions: tuple[Condition, ...]
    reason: str
    where: str
    """The `file:line` of the rule's header."""
    optional: bool = False
    """Whether the tools that the rule names may be missing."""

    @property
    def name(self) -> str:
        return f"{self.id} ({self.where})"

    def about(self, tool: BoundTool) -> bool:
        """Return whether the rule applies to this tool: a pattern matches its name, or the rule gives one of its
        aliases in full.
        """
        return any(names(pattern, tool) for pattern in self.tools)

    def matches(self, facts: Facts) -> bool:
        """Return whether every condition holds.

        An unknown condition counts as false for an allow rule, and as true for all others.

        Raises:
            TooLarge: A value is too large to judge.
            HasToWait: A fact must not be computed on this thread.
        """
        raised: Exception | None = None
        allows = self.verdict == "allow"
        for condition in self.conditions:
            try:
                value = facts.get(condition.reads)
            except (TooLarge, HasToWait) as error:
                raised = raised or error
                continue
            if value is MISSING:
                return False
            held = condition.judge(value, every=allows)
            if held is False or (held is None and allows):
                return False
        if raised is not None:
            raise raised
        return True

    def says(self, facts: Facts, tool: str) -> Verdict:
        """Return the verdict on a matching call, with the facts for its reason."""
        if self.verdict == "allow":
            return Allow(rule=self.name)
        if self.verdict == "judge":
            return JudgmentRequired(rule=self.name)
        told = "; ".join(condition.told(facts) for condition in self.conditions[:_MAX_TOLD])
        if self.verdict == "ask":
            question = self.reason or f"May {tool} run?"
            return Ask(question=f"{question} ({told})" if told else question, rule=self.name)
        if self.reason:
            return Deny(reason=f"{self.reason} ({told})" if told else self.reason, rule=self.name)
        why = f"{self.name}: {told}" if told else self.name
        return Deny(reason=f"a rule forbids it ({why}). Do not repeat the call; use another way.", rule=self.name)


def names(pattern: str, tool: BoundTool) -> bool:
    """Return whether one entry of a rule's `tool` matches this tool."""
    if pattern == "*" or pattern == tool.name or pattern in tool.tool.aliases:
        return True
    return not _WILD.isdisjoint(pattern) and re.match(glob_regex(pattern), tool.name) is not None
