"""Find names and patterns in the configuration of a gateway that fit no tool or no principal, because they are misspelled.

Patterns of tools are compared with the tools that the servers have listed, patterns of principals with the principals of the file. Starts
and reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from callgate._terminal_text import one_line
from callgate.argument_checks import closest_names
from callgate.errors import UsageError
from callgate.gateway._server_features.operator_tools import OPERATOR_TOOLS
from callgate.gateway.config import GatewayConfig
from callgate.gateway.principals import EVERY, LOCAL
from callgate.policy import Rules

__all__ = ["refuse_unknown_principals", "unmatched_tool_patterns"]


def unmatched_tool_patterns(config: GatewayConfig, tools: Iterable[str]) -> list[str]:
    """Return a sentence for each pattern of tools that fits none of these tools and none of the gateway's own.

    Empty if sessions of clients may have other tools.
    """
    if any(one.enabled and one.server.client_tools for one in config.servers):
        return []
    patterns = {f"[principals.{one.principal.name}] tools": one.principal.tools for one in config.principals}
    patterns["[jwt.tool_scopes]"] = tuple(config.jwt.tool_scopes) if config.jwt is not None else ()
    known = (*tools, *OPERATOR_TOOLS)
    return [_unmatched(key, pattern, "tool", known) for key, given in patterns.items() for pattern in given if not _fits(pattern, known)]


def refuse_unknown_principals(config: GatewayConfig, rules: Iterable[Rules]) -> None:
    """Refuse names and patterns of principals that fit none, if the file has all principals: without `[jwt]`.

    Raises:
        UsageError: `metrics` or a rule without `optional` is about a principal that does not exist.
    """
    if config.jwt is not None or not config.principals:
        return
    known = (*(one.principal.name for one in config.principals), LOCAL.name)
    metrics = config.http.metrics if config.http is not None else ()
    found = [_unmatched("[http] metrics", pattern, "principal", known) for pattern in metrics if not _fits(pattern, known)]
    found += [problem for one in rules for problem in _unknown_in_rules(one, known)]
    if found:
        raise UsageError(f"{found[0]}{f' ({len(found) - 1} more.)' if len(found) > 1 else ''}")


def _unknown_in_rules(rules: Rules, known: Sequence[str]) -> Iterator[str]:
    for rule in rules.rules:
        for comparison in (each for one in rule.conditions if one.fact == "principal" and not rule.optional for each in one.comparisons):
            for operand in comparison.operand if isinstance(comparison.operand, list) else [comparison.operand]:
                exact = comparison.word in ("is", "not")
                if not (operand in known if exact else any(comparison.over(operand).holds(name) for name in known)):
                    yield _unmatched(f"{rule.where}: rule '{rule.id}'", str(operand), "principal", known)


def _fits(pattern: str, names: Collection[str]) -> bool:
    return pattern == EVERY or any(fnmatchcase(name, pattern) for name in names)


def _unmatched(where: str, pattern: str, what: str, known: Sequence[str]) -> str:
    near = closest_names(pattern, known)
    meant = f"; did you mean '{one_line(near[0], 128)}'?" if near else "."
    return f"{one_line(where)} has '{one_line(pattern, 128)}', which fits no {what}{meant} Correct it."
