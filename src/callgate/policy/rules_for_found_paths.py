"""Apply the rules for a call's path to the files that the call finds.

An allowed call may visit a file if the same call with this file as its path would be allowed. A human's or judge's approval of the call
counts for the file, too. If only the file would need an approval, the visit is refused. Knows no tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from callgate.policy.call_facts import Facts, TooLarge
from callgate.policy.rule_matching import Rule, Word
from callgate.stage_types import ValidatedCall

__all__ = ["VisitedPaths"]

_DEFAULT = ""
"""Used instead of a rule's id if no rule matched and the default verdict applied."""


class VisitedPaths:
    """Applies the rules for one call's tool, the strictest first, to the files that it finds."""

    def __init__(self, rules: Sequence[Rule], default: Word, call: ValidatedCall) -> None:
        self._rules = rules
        self._default = default
        self._facts = Facts(call)

    @cached_property
    def _approved_questions(self) -> frozenset[str]:
        """Return the rules whose questions about the call itself a human has approved."""
        asked = _rules_that_ask(self._rules, self._default, self._facts)
        return frozenset() if asked is None else asked

    def allows(self, path: str, size_bytes: int) -> bool:
        """Return whether the call may visit the file with this real path, relative to the workspace."""
        try:
            asked = _rules_that_ask(self._rules, self._default, self._facts.at(path, size_bytes))
            return asked is not None and asked <= self._approved_questions
        except TooLarge:
            return False


def _rules_that_ask(rules: Sequence[Rule], default: Word, facts: Facts) -> frozenset[str] | None:
    """Return the rules that would ask a human or a judge; None for a deny."""
    asked: set[str] = set()
    for rule in rules:
        if (rule.verdict == "allow" and asked) or not rule.matches(facts):
            continue
        if rule.verdict == "deny":
            return None
        if rule.verdict == "allow":
            return frozenset()
        asked.add(rule.id)
    if asked or default == "allow":
        return frozenset(asked)
    return None if default == "deny" else frozenset({_DEFAULT})
