"""Declaring and registering tools: complete or refused, one name one tool, nothing assumed safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal, Tool, ToolContext, UsageError, ValidationResult, tool
from callgate.protocols import Execution, RunRequest
from callgate.tools import ToolRegistry
from tests.door import call, said


class Complete(Tool):
    name = "complete"
    description = "A complete tool."
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    category = "safe_chain"

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True, "data": params["n"]}


@pytest.mark.parametrize("attribute", ["name", "description", "parameters", "category"])
def test_a_tool_without_a_required_attribute_is_refused(attribute: str) -> None:
    lacking = type("Lacking", (Complete,), {attribute: None if attribute in ("parameters", "category") else ""})
    with pytest.raises(UsageError, match=f"has no {attribute}"):
        ToolRegistry([lacking()])


def test_a_second_tool_of_the_same_name_is_refused_and_both_places_are_named() -> None:
    @tool
    def complete() -> None:
        """Another one."""

    with pytest.raises(UsageError, match=r"Complete.*test_registry\.py:\d+"):
        ToolRegistry([Complete(), complete])


def test_a_tool_hidden_by_an_earlier_layer_is_reported() -> None:
    registry = ToolRegistry([Complete()])
    registry.register(Complete(), layer="mcp")
    found = registry.get("complete")
    assert found is not None
    assert found.layer == "builtin"
    assert len(registry.shadowed) == 1
    assert "hidden" in registry.shadowed[0]


@pytest.mark.parametrize("order", [["mcp", "capability", "builtin"], ["builtin", "capability", "mcp"]])
def test_resolution_asks_built_in_then_capability_then_mcp(order: list[Any]) -> None:
    registry = ToolRegistry()
    for layer in order:
        registry.register(Complete(), layer=layer)
    found = registry.get("complete")
    assert found is not None
    assert found.layer == "builtin"


async def test_a_tool_of_a_later_layer_is_found_by_the_engine() -> None:
    async with Engine() as engine:
        engine.register(Complete(), layer="mcp")
        assert (await said(engine, call("complete", n=3), Scope(actor="ann"))).data == 3


def test_aliases_resolve_and_cannot_take_a_name() -> None:
    @tool(aliases=("old_name",))
    def fresh() -> None:
        """Do."""

    registry = ToolRegistry([fresh])
    found = registry.get("old_name")
    assert found is not None
    assert found.name == "fresh"

    @tool(aliases=("fresh",))
    def other() -> None:
        """Do."""

    with pytest.raises(UsageError, match="Alias 'fresh'"):
        registry.register(other)


def test_lookup_by_name_by_category_and_of_all() -> None:
    @tool(category="terminal")
    def say() -> None:
        """Say."""

    registry = ToolRegistry([Complete(), say])
    assert registry.get("nobody") is None
    assert registry.by_category("terminal") == ["say"]
    assert registry.by_category("dangerous") == []
    assert registry.names() == ["complete", "say"]


def test_the_schemas_are_what_an_openai_request_takes() -> None:
    (item,) = ToolRegistry([Complete()]).openai()
    assert item == {
        "type": "function",
        "function": {"name": "complete", "description": "A complete tool.", "parameters": Complete.parameters},
    }


def test_a_bare_tool_assumes_nothing_safe() -> None:
    @tool
    def do(n: int) -> str:
        """Do something."""
        return str(n)

    bound = ToolRegistry([do]).get("do")
    assert bound is not None
    assert (bound.effect, bound.category, bound.cache_scope, bound.requires_actor) == ("once", "safe_chain", None, False)
    assert do(3) == "3"


@pytest.mark.parametrize(
    ("category", "effect"), [("safe_chain", "none"), ("terminal", "once"), ("dangerous", "once"), ("async_required", "once")]
)
def test_a_written_category_brings_its_effect(category: Any, effect: str) -> None:
    @tool(category=category)
    async def do() -> None:
        """Do."""

    bound = ToolRegistry([do]).get("do")
    assert bound is not None
    assert bound.effect == effect


def test_a_long_call_that_takes_the_idempotency_key_is_idempotent() -> None:
    @tool(category="async_required")
    async def store(text: str, ctx: ToolContext) -> str:
        """Store."""
        return ctx.idempotency_key

    bound = ToolRegistry([store]).get("store")
    assert bound is not None
    assert bound.effect == "idempotent"


def test_the_base_class_has_the_defaults_of_the_documents() -> None:
    assert (Tool.cacheable, Tool.cache_scope, Tool.cache_ttl, Tool.requires_actor) == (False, "tick", None, True)


async def test_the_base_execute_is_not_implemented() -> None:
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
        ({"name": "x" * 65}, "cannot be used"),
        ({"description": "x" * 20_000}, "20000 characters"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(settings: dict[str, Any], complaint: str) -> None:
    def do() -> None:
        """Do."""

    with pytest.raises(UsageError, match=complaint):
        ToolRegistry([tool(**settings)(do)])


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="timeout_s"):
        tool(timeout=3)  # type: ignore[call-overload]


async def test_a_tool_validates_its_own_arguments_after_the_schema() -> None:
    class Even(Complete):
        def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
            if params["n"] % 2:
                return ValidationResult(valid=False, errors=["n: expected an even number, got an odd one"])
            return ValidationResult(valid=True, warnings=["even is fine"], cleaned_params={"n": params["n"] + 100})

    async with Engine([Even()]) as engine:
        odd = await said(engine, call("complete", n=1), Scope(actor="a"))
        even = await said(engine, call("complete", n=2), Scope(actor="a"))
    assert odd.failure_class == "invalid_parameters"
    assert "even number" in odd.text
    assert even.data == 102
    assert "even is fine" in even.text


def test_a_validation_result_is_empty_by_default() -> None:
    found = ValidationResult(valid=True)
    assert (found.errors, found.warnings, found.cleaned_params) == ([], [], {})


async def test_a_result_that_is_none_or_no_dict_or_of_wrong_types_is_the_authors_error() -> None:
    returned: list[Any] = [None, "text", {"success": "yes"}, {"success": False, "error": 5}]

    class Returns(Complete):
        async def execute(self, actor: str, **params: Any) -> Any:
            return returned[params["n"]]

    async with Engine([Returns()]) as engine:
        for n in range(len(returned)):
            result = await said(engine, call("complete", n=n), Scope(actor="a"))
            assert result.failure_class == "invalid_result", returned[n]


async def test_a_functions_return_value_is_wrapped_none_included() -> None:
    @tool(effect="none")
    async def nothing() -> None:
        """Return nothing."""

    async with Engine([nothing]) as engine:
        result = await said(engine, call("nothing"))
    assert result.success
    assert result.structured is None


async def test_the_standard_shape_is_read_and_other_keys_are_kept() -> None:
    class Full(Complete):
        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            return {"success": True, "data": [1], "message": "done", "end_turn": True, "image_metadata": {"w": 1}, "hint": "kept"}

    async with Engine([Full()]) as engine:
        result = await said(engine, call("complete", n=1), Scope(actor="a"))
    assert (result.data, result.message, result.end_turn, result.image_metadata) == ([1], "done", True, {"w": 1})
    assert '"hint":"kept"' in result.text


@pytest.mark.parametrize(
    ("schema", "value", "said_so"),
    [
        ({"type": "object"}, [1], "the result: expected an object, got [1]"),
        ({"enum": ["red"]}, "blue", 'the result: expected one of "red", got "blue"'),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"], '[1]: expected an integer, got "x"'),
        ({"required": ["n"]}, {}, "n: expected a value, got nothing: it is missing"),
    ],
)
async def test_what_an_output_schema_does_not_allow_is_said_in_words(schema: dict[str, object], value: object, said_so: str) -> None:
    @tool(effect="none", output_schema=schema)
    async def give() -> Any:
        """Give."""
        return value

    async with Engine([give]) as engine:
        result = await said(engine, call("give"))
    assert result.error is not None
    assert result.error.startswith(f"give gave back what its output schema does not allow: {said_so}. The call did run")


async def test_an_output_schema_that_the_value_breaks_is_the_authors_error() -> None:
    @tool(effect="none", output_schema={"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]})
    async def count() -> Any:
        """Count."""
        return {"n": "many"}

    async with Engine([count]) as engine:
        result = await said(engine, call("count"))
    assert (result.failure_class, result.code) == ("invalid_result", "output_schema")


async def test_sync_and_async_tools_are_both_taken() -> None:
    @tool(effect="none")
    def plain() -> str:
        """Plain."""
        return "plain"

    @tool(effect="none")
    async def waiting() -> str:
        """Waiting."""
        return "waiting"

    @tool(effect="none")
    def deferred() -> Any:
        """Return something to wait for."""
        return waiting.function()

    async with Engine([plain, waiting, deferred]) as engine:
        assert [(await said(engine, call(name))).text for name in ("plain", "waiting", "deferred")] == ["plain", "waiting", "waiting"]


def test_a_process_tool_that_no_other_process_could_find_is_refused_with_the_fix() -> None:
    @tool(runner="process")
    def inner() -> None:
        """Live in a function."""

    with pytest.raises(UsageError, match="Move it to the top level"):
        Engine([inner])


def test_the_inherited_validation_checks_the_tools_own_schema() -> None:
    found = Complete().validate_parameters({"n": "x"})
    assert not found.valid
    assert "n" in found.errors[0]
    assert Complete().validate_parameters({"n": 1}).valid


class Elsewhere:
    """A runner of the host's own."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.closed = False

    async def run(self, request: RunRequest) -> Execution:
        self.ran.append(request.context.uid)
        return Execution(status="returned", value={"from": "elsewhere", "arguments": request.approved.call.arguments})

    async def close(self) -> None:
        self.closed = True


async def test_the_host_may_bring_a_runner_of_its_own() -> None:
    @tool(runner="elsewhere", effect="none")
    async def far(n: int) -> None:
        """Run far away."""

    runner = Elsewhere()
    async with Engine([far], runners={"elsewhere": runner}) as engine:
        result = await said(engine, call("far", n="3"))
    assert result.structured == {"from": "elsewhere", "arguments": {"n": 3}}
    assert runner.ran == [result.uid]
    assert runner.closed


def test_a_runner_that_nobody_has_is_refused_with_those_there_are() -> None:
    @tool(runner="gpu")
    async def do() -> None:
        """Do."""

    with pytest.raises(UsageError, match=r"no runner 'gpu'.*inline, thread, process"):
        Engine([do])
    with pytest.raises(UsageError, match="cannot be called thread"):
        Engine(runners={"thread": Elsewhere()})


def test_a_tool_may_refer_to_a_variable_that_has_no_value_yet() -> None:
    @tool(effect="none")
    async def stop(ctx: ToolContext) -> None:
        """Stop."""
        later.control.stop("c")

    later = Engine([stop])
    assert "stop" in later.tools


async def test_an_engine_that_nobody_called_is_closed_by_close_sync(tmp_path: Path) -> None:
    await asyncio.to_thread(Engine(journal=SqliteJournal(tmp_path / "journal.db")).close_sync)
    await SqliteJournal(tmp_path / "journal.db").close()


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
        ({"triggers": "weather"}, "triggers='weather'; it must be a tuple of phrases"),
    ],
)
def test_a_setting_that_no_call_could_use_is_refused_at_registration(settings: dict[str, Any], complaint: str) -> None:
    @tool(name="useless", effect="none", **settings)
    async def useless() -> None:
        """Do nothing."""

    with pytest.raises(UsageError) as caught:
        Engine([useless])
    assert complaint in str(caught.value)


@pytest.mark.parametrize("defaults", [lambda self: 1 / 0, lambda self: 5, lambda self: {"n": object()}], ids=["fail", "5", "no JSON"])
def test_defaults_that_no_call_could_use_are_refused_at_registration(defaults: Any) -> None:
    """Registration refuses what is incomplete, with a message that names the place."""

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
    """The same."""

    def do() -> None:
        """Do."""

    with pytest.raises(UsageError, match=f"{role}=5; it must be a function"):
        tool(**{role: 5})(do)  # type: ignore[call-overload]


def test_a_generator_is_refused_because_its_code_would_never_run() -> None:
    """And the message says what to write instead."""

    def lines(n: int) -> Iterator[int]:
        """Yield."""
        yield n

    async def rows(n: int) -> AsyncIterator[int]:
        """Yield."""
        yield n

    for function in (lines, rows):
        with pytest.raises(UsageError, match="Return the whole result"):
            tool(function)


class Adder:
    """Callable, but no function."""

    async def __call__(self, a: int, b: int) -> int:
        return a + b


@pytest.mark.parametrize(
    "subject",
    [Adder(), partial(Adder().__call__, 1), tool(name="made", description="Add.")(Adder().__call__), 5],
    ids=["callable object", "partial", "tool", "no callable"],
)
def test_what_is_no_function_is_refused_by_the_decorator_with_what_to_do(subject: Any) -> None:
    with pytest.raises(UsageError, match=r"which is no function\. Write a def that calls it"):
        tool(name="k", description="Add.")(subject)


@pytest.mark.parametrize("parameters", [5, "abc", ["x"], True])
def test_parameters_that_are_no_schema_are_refused_in_words(parameters: Any) -> None:
    def on() -> str:
        """On."""
        return "on"

    with pytest.raises(UsageError, match=r"has parameters=.*; it must be a JSON Schema"):
        tool(parameters=parameters)(on)
