"""Conditions of rules: comparisons of a fact or an argument with values.

Pure. A test that cannot judge a value returns None; the rule decides what follows. A list is judged item by item. Knows no files and no
tools.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from callgate._globs import glob_regex
from callgate._terminal_text import printable
from callgate.errors import UsageError
from callgate.policy.call_facts import ARGUMENTS, FACTS, UNKNOWN, WIDER_FACTS, Facts

__all__ = ["TESTS", "Comparison", "Condition", "Test", "as_condition", "clip", "shown"]

_MAX_SHOWN = 80

Test = Callable[[object], bool | None]
"""A function that tests a value. It returns None for a value that it cannot judge, which counts as an unknown fact."""


class Comparison(Struct, frozen=True):
    """One test with its name and operand, as written."""

    word: str
    operand: Any
    holds: Test

    def over(self, operand: object) -> Comparison:
        """Return the same comparison with another operand, such as one item of a list."""
        return self if operand is self.operand else Comparison(self.word, operand, TESTS[self.word][1](operand))


class Condition(Struct, frozen=True):
    """One fact with its comparisons."""

    fact: str
    reads: str
    """The name of the fact whose value is judged: `fact`, or a wider one."""
    comparisons: tuple[Comparison, ...]
    holds: Test
    """Return whether one value, which is not a list, meets all comparisons; None if unknown."""

    def judge(self, value: object, *, every: bool) -> bool | None:
        """Return whether the condition holds; None if unknown.

        Args:
            value: The value. If it is a list, each item is judged.
            every: Whether all items of a non-empty list must meet the condition; otherwise one is enough.
        """
        if value is UNKNOWN:
            return None
        if not isinstance(value, list):
            return self.holds(value)
        found = [self.holds(item) for item in value]
        if every:
            return False if False in found or not found else None if None in found else True
        return True if True in found else None if None in found else False

    def told(self, facts: Facts) -> str:
        """Return the fact with its value, for the reason of a verdict. A long value is replaced by its size."""
        value = facts.get(self.reads)
        if value is UNKNOWN:
            return f"{self.fact} could not be established"
        if self.fact in FACTS and not FACTS[self.fact].shown:
            return f"by {self.fact}"
        if isinstance(value, list):
            item = next((item for item in value if self.holds(item) is not False), None)
            return f"{self.fact} has {clip(item)} among its items"
        return f"{self.fact} is {clip(value)}"


def clip(value: object) -> str:
    """Return the value for use in a sentence: the whole value if it is short, else its type and size."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            shown = repr(value) if not isinstance(value, int) or value.bit_length() < 256 else ""
            return shown or "a number of many digits"
        case str() if len(value) <= _MAX_SHOWN:
            return f"'{printable(value)}'".replace("\n", "\\n").replace("\t", "\\t")
        case str():
            return f"text of {len(value):,} characters"
        case list():
            return f"a list of {len(value):,} items"
    return "an object"


def as_condition(fact: str, value: object, where: str, *, allows: bool = False) -> Condition:
    """Read one entry of `when`.

    Args:
        allows: Whether the rule allows. Then the prefix of a command does not end within a word; else the condition also sees the commands
            that a command may run, except to test that it is `not` something.
        where: The place to name in errors.

    Raises:
        UsageError: The fact or test does not exist, or values cannot be compared with this value.
    """
    if fact not in FACTS and not (fact.startswith(ARGUMENTS) and fact != ARGUMENTS):
        raise UsageError(f"{where} asks for the unknown fact '{fact}'. Facts: arguments.NAME, {', '.join(FACTS)}.")
    if isinstance(value, dict):
        comparisons = tuple(_comparison(word, operand, where) for word, operand in value.items())
        if allows and fact == "command":
            comparisons = tuple(_at_word_end(comparison) for comparison in comparisons)
        if not comparisons:
            raise UsageError(f"{where} has an empty condition for '{fact}'.")
    else:
        _check_operand(value, f"{where}: the condition for '{fact}'")
        comparisons = (Comparison("is", value, _among(value) if isinstance(value, list) else _is(value)),)
    negates = any(comparison.word == "not" for comparison in comparisons)
    reads = fact if allows or negates else WIDER_FACTS.get(fact, fact)
    tests = [comparison.holds for comparison in comparisons]
    return Condition(fact, reads, comparisons, tests[0] if len(tests) == 1 else lambda actual: _all(test(actual) for test in tests))


def shown(value: object) -> str:
    """Return a value of a rule file, for an error."""
    found = repr(value)
    return found if len(found) <= _MAX_SHOWN else found[:_MAX_SHOWN] + "…"


def _check_operand(value: object, what: str) -> None:
    """Refuse a value that no other value can be compared with, because its rule would never or always match."""
    items = value if isinstance(value, list) else [value]
    if not items:
        raise UsageError(f"{what} is an empty list, which nothing can be one of. Name at least one value, or drop the condition.")
    for item in items:
        if not isinstance(item, _SCALAR) or (isinstance(item, float) and not math.isfinite(item)):
            raise UsageError(f"{what} is {shown(item)}; it must be text, a finite number, true or false, or a list of these.")


def _all(found: Iterable[bool | None]) -> bool | None:
    """Return True if all tests are True, False if at least one is False, otherwise None."""
    held = list(found)
    return False if False in held else None if None in held else True


def _comparison(word: str, operand: Any, where: str) -> Comparison:
    if word not in TESTS:
        raise UsageError(f"{where} uses the unknown test '{word}'. Tests: {', '.join(TESTS)}.")
    expected, test_of = TESTS[word]
    if not isinstance(operand, expected) or (isinstance(operand, bool) and word not in ("is", "not")):
        raise UsageError(f"{where}: '{word}' cannot be compared with {shown(operand)}.")
    _check_operand(operand, f"{where}: the value of '{word}'")
    return Comparison(word, operand, test_of(operand))


def _at_word_end(comparison: Comparison) -> Comparison:
    """Return a comparison that, if it is a prefix which ends in a letter or digit, holds only where the word ends there."""
    prefix = comparison.operand
    if comparison.word != "prefix" or not prefix[-1:].isalnum():
        return comparison
    return replace(comparison, holds=lambda actual: f"{actual} ".startswith(f"{prefix} ") if isinstance(actual, str) else None)


def _is_equal(actual: object, expected: object) -> bool | None:
    """Return whether two values are equal as JSON: 1 equals 1.0, but not true. None for a list or an object."""
    if isinstance(actual, (list, Mapping)):
        return None
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    return actual == expected


def _is(expected: object) -> Test:
    return lambda actual: _is_equal(actual, expected)


def _among(expected: list[object]) -> Test:
    def held(actual: object) -> bool | None:
        found = [_is_equal(actual, item) for item in expected]
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


def _glob(pattern: str) -> Test:
    matches = re.compile(glob_regex(pattern)).match
    return lambda actual: matches(actual) is not None if isinstance(actual, str) else None


_SCALAR = (str, int, float, bool)
TESTS: Final[dict[str, tuple[Any, Callable[[Any], Test]]]] = {
    "is": (_SCALAR, _is),
    "not": ((*_SCALAR, list), _differs),
    "above": ((int, float), _number(operator.gt)),
    "below": ((int, float), _number(operator.lt)),
    "at_least": ((int, float), _number(operator.ge)),
    "at_most": ((int, float), _number(operator.le)),
    "prefix": (str, _string(str.startswith)),
    "suffix": (str, _string(str.endswith)),
    "contains": (str, _string(operator.contains)),
    "glob": (str, _glob),
}
"""The allowed operands, and the function that makes the test, by test name."""
