"""Check rules against the registered tools: a rule that can never match is an error, because it would silently let calls through.

Run when an engine is made and when a tool is registered later. Returns all errors, each with its place and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence

from callgate.policy.call_facts import ARGUMENTS, FACTS
from callgate.policy.condition_satisfiability import ANYTHING, PossibleValue, of_fact, of_parameter, told
from callgate.policy.rule_conditions import Condition, clip
from callgate.policy.rule_matching import Rule, names
from callgate.tools import BoundTool

__all__ = ["fact_problem", "problems"]

_MAX_NAMED = 20


def problems(rules: Iterable[Rule], tools: Sequence[BoundTool]) -> list[str]:
    """Return the errors of `rules` for these tools, one or two sentences each."""
    return [f"{rule.where}: rule '{rule.id}' {problem}" for rule in rules for problem in _check_rule(rule, tools)]


def _check_rule(rule: Rule, tools: Sequence[BoundTool]) -> Iterator[str]:
    about = [tool for tool in tools if rule.about(tool)]
    if not rule.optional:
        for pattern in rule.tools:
            if pattern != "*" and not any(names(pattern, tool) for tool in tools):
                yield _no_tool(pattern, tools)
    for condition in rule.conditions:
        if condition.fact == "tool" and not rule.optional:
            yield from _check_tool_fact(condition, tools)
        elif condition.fact == "server" and not rule.optional:
            yield from _check_server_fact(condition, tools)
        elif about:
            yield from _check_condition(condition, rule, about)


def _no_tool(name: str, tools: Sequence[BoundTool]) -> str:
    known = [known for tool in tools for known in (tool.name, *tool.tool.aliases)]
    what = f"is about '{name}', and no tool that is registered has such a name"
    return f"{what}{_suggest_name(name, known)} Correct it, or write optional = true where the tool may be absent."


def _check_tool_fact(condition: Condition, tools: Sequence[BoundTool]) -> Iterator[str]:
    for name in _unknown_names(condition, {tool.name for tool in tools}):
        yield _no_tool(name, tools)


def _check_server_fact(condition: Condition, tools: Sequence[BoundTool]) -> Iterator[str]:
    known = {tool.server for tool in tools} - {""}
    for name in _unknown_names(condition, known):
        what = f"is about tools of the server '{name}', and no tool that is registered is one{_suggest_name(name, known)}"
        yield f"{what} Correct it, or write optional = true where the server may be absent."


def _unknown_names(condition: Condition, known: Collection[str]) -> Iterator[str]:
    """Yield the values that a condition compares with and that none of the known names is."""
    for comparison in condition.comparisons:
        for operand in comparison.operand if isinstance(comparison.operand, list) else [comparison.operand]:
            if comparison.word in ("is", "not") and operand not in known:
                yield str(operand)


def _check_condition(condition: Condition, rule: Rule, about: list[BoundTool]) -> Iterator[str]:
    """Yield the errors of a condition: for each tool that is named in full, and for a pattern only if all matching tools have the error."""
    if not condition.fact.startswith(ARGUMENTS) and not FACTS[condition.fact].arguments:
        return
    found = {tool.name: _check_for_tool(condition, tool) for tool in about}
    in_full = [tool.name for tool in about if tool.name in rule.tools or any(alias in rule.tools for alias in tool.tool.aliases)]
    wrong = [(name, found[name]) for name in in_full if found[name]]
    if not wrong and all(found.values()) and condition.fact.startswith(ARGUMENTS):
        wrong = [next(iter(found.items()))] if len(found) == 1 else [("any of the tools it is about", _for_all(condition, found))]
    yield from (problem for _, problem in wrong)


def _for_all(condition: Condition, found: dict[str, str]) -> str:
    values = {problem for problem in found.values() if "compares" in problem}
    return min(values) if values else f"asks for {condition.fact}, which none of the tools it is about takes. Correct the name."


def _check_for_tool(condition: Condition, tool: BoundTool) -> str:
    """Return the error of a condition for one tool; empty if there is none."""
    fact = FACTS.get(condition.fact)
    if fact is not None:
        return "" if any(_parameter(tool, name) for name in fact.arguments) else _no_fact(condition.fact, fact.arguments, tool)
    name = condition.fact.removeprefix(ARGUMENTS)
    possible = _parameter(tool, name)
    if not possible:
        return _no_parameter(name, tool)
    for comparison in condition.comparisons:
        operands = comparison.operand if isinstance(comparison.operand, list) else [comparison.operand]
        for operand in operands:
            if not any(one.meets(comparison.over(operand)) for one in possible):
                what = _compares(f"{condition.fact} of {tool.name}", comparison.word, operand)
                return f"{what} it is {told(possible)}. Correct the value{_member_hint(possible, condition.fact)}."
    return ""


def _parameter(tool: BoundTool, name: str) -> list[PossibleValue]:
    """Return the possible values of a dotted argument name; empty if there is no such argument."""
    schema = tool.schema.source
    if name in tool.schema.properties:
        return of_parameter(schema, name, schema) or [ANYTHING]
    if "." not in name:
        return of_parameter(schema, name, schema)
    first, *rest = name.split(".")
    found = _parameter(tool, first)
    for step in rest:
        found = [inner for one in found for inner in one.member(step)]
    return found


def _no_parameter(name: str, tool: BoundTool) -> str:
    known = sorted(tool.schema.properties)
    takes = f" It takes {', '.join(known[:_MAX_NAMED])}." if known else ""
    meant = _suggest_name(name, known)
    return f"asks for arguments.{name}, which {tool.name} does not take{meant} Correct the name.{takes}"


def _no_fact(fact: str, arguments: tuple[str, ...], tool: BoundTool) -> str:
    return (
        f"asks for the fact {fact}, which {tool.name} never has: it takes none of the arguments {', '.join(arguments)}."
        " Ask for an argument of the tool, as arguments.NAME."
    )


def _member_hint(possible: list[PossibleValue], fact: str) -> str:
    return f", or name a member, as {fact}.NAME" if any(one.kind == "object" for one in possible) else ""


def _suggest_name(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [str(one) for one in known], n=1)
    return f"; did you mean '{near[0]}'?" if near else "."


def fact_problem(condition: Condition) -> str:
    """Return the error of a condition on a fact, for any tools; empty if there is none."""
    fact = FACTS.get(condition.fact)
    if fact is None:
        return ""
    possible = of_fact(fact)
    for comparison in condition.comparisons:
        for operand in comparison.operand if isinstance(comparison.operand, list) else [comparison.operand]:
            if not any(one.meets(comparison.over(operand)) for one in possible):
                meant = _suggest_name(operand, fact.values) if isinstance(operand, str) and fact.values else "."
                return f"{_compares(condition.fact, comparison.word, operand)} it is {told(possible)}{meant}"
            why = _why_never(condition.fact, comparison.word, operand, lower=fact.lower) if isinstance(operand, str) else ""
            if why:
                return f"{_compares(condition.fact, comparison.word, operand)} {why}."
    return ""


def _compares(fact: str, word: str, operand: object) -> str:
    return f"compares {fact} with {clip(operand)} ('{word}'), which cannot hold:"


def _why_never(fact: str, word: str, operand: str, *, lower: bool) -> str:
    """Return why no value of a text fact can match; empty if one can."""
    if lower and operand != operand.lower():
        return "it is lower-case. Write it so"
    if fact == "path" and word != "contains" and word != "suffix" and operand.startswith(("/", "./")):
        return "it is relative to the workspace and begins with a name. Leave out the beginning"
    if fact == "path" and word in ("is", "not", "suffix", "glob") and operand.endswith("/") and operand != "/":
        return "it never ends with '/'. Leave that out, or write 'folder/*'"
    if fact == "url.host" and ("/" in operand or "@" in operand):
        return "it is the host alone, as in 'example.com'"
    if fact == "url.scheme" and ":" in operand:
        return "it is the scheme alone, as in 'https'"
    if fact == "command.program" and word in ("is", "not") and " " in operand:
        return "it is one word. Ask for the fact command instead"
    return ""
