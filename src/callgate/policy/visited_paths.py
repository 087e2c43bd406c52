"""Judge the files that a call comes across by the same rules as the path that it names.

A call that was let through may visit a file where the same call would have been let through with this file as its path. A question that a
human said yes to for this call counts, and so does a judge's yes; one that only the file brings up does not. Knows no tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from callgate.policy.facts import Facts, TooLarge
from callgate.policy.rule import Rule, Word
from callgate.route import ValidatedCall

__all__ = ["VisitedPaths"]

_DEFAULT = ""
"""In the place of a rule's id: no rule matched, and the default decided."""


class VisitedPaths:
    """The rules about one call's tool, the strictest first, over the files that it comes across."""

    def __init__(self, rules: Sequence[Rule], default: Word, call: ValidatedCall) -> None:
        self._rules = rules
        self._default = default
        self._facts = Facts(call)

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The questions that the call itself brought up, which a human has answered with yes."""
        asked = _asked(self._rules, self._default, self._facts)
        return frozenset() if asked is None else asked

    def allows(self, path: str, size_bytes: int) -> bool:
        """Whether the call may visit the file at this real path, relative to the workspace."""
        try:
            asked = _asked(self._rules, self._default, self._facts.at(path, size_bytes))
            return asked is not None and asked <= self._asked
        except TooLarge:
            return False


def _asked(rules: Sequence[Rule], default: Word, facts: Facts) -> frozenset[str] | None:
    """The rules that would ask a human or a judge; None where the verdict is a deny."""
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
