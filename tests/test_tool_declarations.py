"""Declarations of tools: which options there are, what they mean, and how invalid ones are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, get_type_hints

import pytest

from callgate import Engine, Scope, Tool, ToolContext, UsageError, tool
from callgate.tools import FunctionTool, ToolOptions, ToolRegistry
from tests.complete_tool import Complete
from tests.engine_calls import call, said


def test_a_tool_without_options_has_the_effect_once_and_is_not_cached() -> None:
    @tool
    def do(n: int) -> str:
        """Do something."""
        return str(n)

    bound = ToolRegistry([do]).get("do")
    assert bound is not None
    assert (bound.effect, bound.category, bound.cache_scope, bound.requires_actor) == ("once", "safe_chain", None, False)
    assert do(3) == "3"


def test_every_option_of_a_tool_has_a_name_and_a_type() -> None:
    """An option and the attribute of `Tool` with the same name have the same type, unless `@tool` takes a shorter form."""
    options, attributes = get_type_hints(ToolOptions), get_type_hints(Tool)
    other = {name for name, kind in options.items() if attributes.get(name) != kind}
    assert other == {"name", "description", "key", "not_done", "validate", "verify"}
    assert Any not in options.values()


def test_a_type_checker_reports_unknown_or_mistyped_tool_options() -> None:
    """Strict mypy reports every `type: ignore` comment below that is not needed."""
    with pytest.raises(UsageError, match="has no option 'efect'"):
        tool(efect="none")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="has no option 'timout_s'"):
        tool(len, timout_s=1)  # type: ignore[call-overload]
    tool(timeout_s="1")  # type: ignore[call-overload]
    tool(effect="sometimes")  # type: ignore[call-overload]
    FunctionTool(test_every_option_of_a_tool_has_a_name_and_a_type, cacheable="no")  # type: ignore[arg-type]


def test_tool_accepts_a_function_together_with_its_options() -> None:
    def find(text: str) -> str:
        """Find a text."""
        return text

    found = tool(find, effect="none", aliases=("search",))
    assert (found.effect, found.aliases, found("a")) == ("none", ("search",), "a")


@pytest.mark.parametrize(
    ("category", "effect"), [("safe_chain", "none"), ("terminal", "once"), ("dangerous", "once"), ("async_required", "once")]
)
def test_a_declared_category_sets_the_default_effect(category: Any, effect: str) -> None:
    @tool(category=category)
    async def do() -> None:
        """Do."""

    bound = ToolRegistry([do]).get("do")
    assert bound is not None
    assert bound.effect == effect


def test_an_async_required_tool_that_takes_an_idempotency_key_is_idempotent() -> None:
    @tool(category="async_required")
    async def store(text: str, ctx: ToolContext) -> str:
        """Store."""
        return ctx.idempotency_key

    bound = ToolRegistry([store]).get("store")
    assert bound is not None
    assert bound.effect == "idempotent"


def test_the_tool_base_class_has_the_documented_defaults() -> None:
    assert (Tool.cacheable, Tool.cache_scope, Tool.cache_ttl, Tool.requires_actor) == (False, "tick", None, True)


async def test_a_call_of_a_tool_class_without_an_execute_method_fails() -> None:
    class Empty(Complete):
        execute = Tool.execute

    async with Engine([Empty()]) as engine:
        result = await said(engine, call("complete", n=1), Scope(actor="ann"))
    assert result.failure_class == "exception"
    assert "no execute method" in str(result.error)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"category": "harmless"}, "category='harmless'"),
        ({"effect": "twice"}, "effect='twice'"),
        ({"cacheable": True}, "cacheable but has effects"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"name": "a b"}, "cannot be used"),
        ({"name": "x" * 129}, "cannot be used"),
        ({"description": "x" * 70_000}, "70000 characters"),
    ],
)
def test_an_invalid_tool_declaration_is_refused(settings: dict[str, Any], complaint: str) -> None:
    def do() -> None:
        """Do."""

    with pytest.raises(UsageError, match=complaint):
        ToolRegistry([tool(**settings)(do)])


def test_an_unknown_tool_option_is_refused_with_the_known_options() -> None:
    with pytest.raises(UsageError, match="timeout_s"):
        tool(timeout=3)  # type: ignore[call-overload]


def test_a_tool_may_refer_to_a_variable_that_is_assigned_later() -> None:
    @tool(effect="none")
    async def stop(ctx: ToolContext) -> None:
        """Stop."""
        later.control.stop("c")

    later = Engine([stop])
    assert "stop" in later.tools


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"timeout_s": "5"}, "timeout_s='5'; it must be a finite number of seconds above 0"),
        ({"timeout_s": True}, "timeout_s=True; it must be a finite number"),
        ({"timeout_s": float("inf")}, "timeout_s=inf; it must be a finite number"),
        ({"timeout_s": 0}, "timeout_s=0; it must be a finite number"),
        ({"cacheable": True, "cache_ttl": float("inf")}, "cache_ttl=inf; it must be a finite number"),
        ({"cacheable": True, "cache_ttl": float("nan")}, "cache_ttl=nan; it must be a finite number"),
        ({"parallel": 0}, "parallel=0; it must be a whole number from 1"),
        ({"parallel": -1}, "parallel=-1; it must be a whole number from 1"),
        ({"parallel": "2"}, "parallel='2'; it must be a whole number from 1"),
        ({"parallel": True}, "parallel=True; it must be a whole number from 1"),
        ({"aliases": "xyz"}, "aliases='xyz'; it must be a tuple of names"),
        ({"retry": "3"}, "retry='3'; it must be a RetryPolicy"),
        ({"description": 5}, "description=5; it must be text"),
        ({"coerce": "no"}, "coerce='no'; it must be True or False"),
        ({"retryable": "no"}, "retryable='no'; it must be True or False"),
        ({"requires_actor": 1}, "requires_actor=1; it must be True or False"),
        ({"reads": 5}, "reads=5; it must be a key"),
        ({"writes": ("a:", 5)}, "writes=('a:', 5); it must be a key"),
        ({"reads": "file:{path}"}, "reads='file:{path}', and 'path' is none of its parameters. It has none."),
        ({"writes": ("a:", "file:{")}, "writes='file:{', which is not a pattern"),
        ({"triggers": "weather"}, "triggers='weather'; it must be a tuple of phrases"),
    ],
)
def test_an_option_with_an_invalid_value_is_refused_at_registration(settings: dict[str, Any], complaint: str) -> None:
    @tool(name="useless", effect="none", **settings)
    async def useless() -> None:
        """Do nothing."""

    with pytest.raises(UsageError) as caught:
        Engine([useless])
    assert complaint in str(caught.value)


@pytest.mark.parametrize("defaults", [lambda self: 1 / 0, lambda self: 5, lambda self: {"n": object()}], ids=["fail", "5", "no JSON"])
def test_defaults_that_fail_or_are_no_json_object_are_refused_at_registration(defaults: Any) -> None:
    """Registration refuses an incomplete tool, and the message names it."""

    class Odd(Tool):
        name = "odd"
        description = "Odd."
        category = "terminal"
        parameters = {"type": "object"}

    Odd.defaults = defaults  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="The defaults of tool 'odd'"):
        Engine([Odd()])


@pytest.mark.parametrize("role", ["validate", "verify"])
def test_a_validator_or_verifier_that_is_no_function_is_refused(role: str) -> None:
    def do() -> None:
        """Do."""

    with pytest.raises(UsageError, match=f"{role}=5; it must be a function"):
        tool(**{role: 5})(do)  # type: ignore[call-overload]


def test_a_generator_function_is_refused_as_a_tool() -> None:
    """The message says what to write instead."""

    def lines(n: int) -> Iterator[int]:
        """Yield numbers."""
        yield n

    async def rows(n: int) -> AsyncIterator[int]:
        """Yield numbers."""
        yield n

    for function in (lines, rows):
        with pytest.raises(UsageError, match="Return the whole result"):
            tool(function)


class Adder:
    """A callable object that is not a function."""

    async def __call__(self, a: int, b: int) -> int:
        return a + b


@pytest.mark.parametrize(
    "subject",
    [Adder(), partial(Adder().__call__, 1), tool(name="made", description="Add.")(Adder().__call__), 5],
    ids=["callable object", "partial", "tool", "no callable"],
)
def test_the_tool_decorator_refuses_a_non_function_with_the_next_step(subject: Any) -> None:
    with pytest.raises(UsageError, match=r"which is not a function\. Write a def that calls it"):
        tool(name="k", description="Add.")(subject)


@pytest.mark.parametrize("parameters", [5, "abc", ["x"], True])
def test_parameters_that_are_no_json_schema_are_refused_with_a_clear_error(parameters: Any) -> None:
    def on() -> str:
        """On."""
        return "on"

    with pytest.raises(UsageError, match=r"has parameters=.*; it must be a JSON Schema"):
        tool(parameters=parameters)(on)
