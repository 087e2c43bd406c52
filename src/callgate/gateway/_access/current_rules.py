"""The rules of a gateway, which can be replaced while its engine uses them.

All rule files count as one policy, so that a call is judged by all of the old files or by all of the new ones, and never by some of each.
While it is open which of them will be used, all count, so that no call runs that any of them forbids. Reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from callgate.errors import UsageError
from callgate.policy import Rules
from callgate.protocols import Allow, Ask, Deny, PathFilter, ServerStatus, Verdict
from callgate.stage_types import ValidatedCall
from callgate.tools import BoundTool

__all__ = ["CurrentRules"]

_STRICTEST_FIRST = (Deny, Ask, Allow)
_DEFAULT = Allow(rule="default")


class CurrentRules:
    """A policy of several `Rules` without judges; the strictest verdict counts."""

    never_waits = True
    in_use: tuple[Rules, ...]
    """The rules that count; others may count beside them."""

    def __init__(self, *rules: Rules) -> None:
        self._asked = self.in_use = self._checked = rules

    def narrow(self, *others: Rules, checked: Sequence[Rules] | None = None) -> None:
        """Judge by these rules as well as by those in use. They replace those of an earlier call.

        Args:
            checked: The rules that are compared with the tools from now on. None: those in use.
        """
        self._asked = (*self.in_use, *others)
        self._checked = self.in_use if checked is None else tuple(checked)

    def use(self, *rules: Rules) -> None:
        """Replace the rules. Calls that run already are judged by the new ones when they use more resources."""
        self.in_use = rules
        self.narrow()

    def check_tools(self, tools: Sequence[BoundTool]) -> None:
        """Refuse rules that can never match these tools; see `Rules.check_tools`."""
        for one in self._checked:
            one.check_tools(tools)

    def check_servers(self, servers: Sequence[ServerStatus]) -> None:
        """Refuse servers without a tool for which their configuration requires approval: the tool that was meant would run without it."""
        for one in servers:
            if one.missing_gated_tools:
                raise UsageError(one.missing_gated_tools)

    def judge(self, call: ValidatedCall) -> Verdict | None:
        """Return the strictest verdict, or None if one of them needs the file system or a large value."""
        found: list[Verdict] = []
        for one in self._asked:
            verdict = one.judge(call)
            if verdict is None:
                return None
            found.append(verdict)
        return _strictest(found)

    async def decide(self, call: ValidatedCall) -> Verdict:
        return _strictest([await one.decide(call) for one in self._asked])

    def path_filter(self, call: ValidatedCall) -> PathFilter | None:
        """Return the check for files that this call visits; None if no rule uses paths."""
        found = [allows for one in self._asked if (allows := one.path_filter(call)) is not None]
        if not found:
            return None
        return lambda path, size: all(allows(path, size) for allows in found)


def _strictest(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: _STRICTEST_FIRST.index(type(verdict)), default=_DEFAULT)
