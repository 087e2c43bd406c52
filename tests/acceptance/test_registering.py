"""Tests of tools from declaration to model and back: registration, lookup, schemas, resolution and execution."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, Tool, UsageError, tool
from callgate.messages import openai_message
from callgate.tools import is_retryable_error, validate_tool_result
from tests.acceptance.process_tools import facts, run_by
from tests.engine_calls import call, said


class Add(Tool):
    name = "add"
    description = "Add two numbers."
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
    category = "safe_chain"

    def __init__(self, where: str = "here") -> None:
        self.place = where

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True, "data": params["a"] + params["b"], "where": self.place, "actor": actor}


@pytest.mark.parametrize(
    ("attribute", "value"), [("name", ""), ("description", ""), ("parameters", None), ("category", None), ("category", "harmless")]
)
def test_an_engine_refuses_an_incomplete_tool(attribute: str, value: object) -> None:
    lacking = type("Lacking", (Add,), {attribute: value})
    with pytest.raises(UsageError, match=attribute):
        Engine([lacking()])


async def test_a_tool_class_is_registered_like_an_instance() -> None:
    class More(Add):
        name = "more"

    async with Engine([Add]) as engine:
        engine.register(More)
        engine.tools.register(type("Most", (Add,), {"name": "most"}))
        assert engine.tools.names() == ["add", "more", "most"]
        assert (await said(engine, call("more", a=1, b=2), Scope(actor="ann"))).data == 3


@pytest.mark.parametrize("later", [True, False])
def test_an_incomplete_or_unconstructible_tool_class_is_refused(later: bool) -> None:
    class Lacking(Add):
        description = ""

    class Needs(Add):
        def __init__(self, where: str) -> None:
            super().__init__(where)

    for wrong, says in ((Lacking, "description"), (Needs, r"Needs cannot be made without arguments \(TypeError"), (int, "is not a tool")):
        engine = Engine()
        with pytest.raises(UsageError, match=says):
            engine.register(wrong) if later else Engine([wrong])  # type: ignore[arg-type,list-item]
        engine.close_sync()


def test_two_tools_of_one_name_are_refused_and_both_places_are_named() -> None:
    @tool(name="add")
    def other() -> None:
        """Another one."""

    with pytest.raises(UsageError, match=r"defined twice .*Add, .*test_registering\.py:\d+"):
        Engine([Add(), other])


async def test_tools_are_found_by_name_and_category_and_all_are_listed() -> None:
    @tool(category="terminal")
    def say(text: str) -> None:
        """Say."""

    async with Engine([Add()]) as engine:
        engine.register(say)
        found = engine.tools.get("add")
        assert found is not None
        assert (found.name, engine.tools.get("nobody")) == ("add", None)
        assert (engine.tools.by_category("terminal"), engine.tools.by_category("safe_chain")) == (["say"], ["add"])
        assert ([bound.name for bound in engine.tools], engine.tools.names(), len(engine.tools)) == (["add", "say"], ["add", "say"], 2)
        assert (await said(engine, call("add", a=1, b=2), Scope(actor="ann"))).data == 3
        assert (await said(engine, call("nobody"))).failure_class == "unknown_tool"


async def test_openai_schemas_and_calls_round_trip_to_a_tool_message() -> None:
    """The round trip covers schemas out, a tool call in, and a tool message out."""
    async with Engine([Add()]) as engine:
        (schema,) = json.loads(json.dumps(engine.tools.openai()))
        function = schema["function"]
        item = {"id": "call_1", "type": "function", "function": {"name": function["name"], "arguments": '{"a": 20, "b": 22}'}}
        result = await said(engine, RawCall.from_openai(item), Scope(actor="ann"))
    assert (schema["type"], function["description"], function["parameters"]) == ("function", "Add two numbers.", Add.parameters)
    message = openai_message(result)
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    assert json.loads(str(message["content"]))["data"] == 42


async def test_a_tool_class_has_the_documented_defaults() -> None:
    """By default a tool is not cacheable, has the tick cache scope, no time to live, and requires an actor."""
    runs: list[str] = []

    class Look(Add):
        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            runs.append(actor)
            return {"success": True}

    class Cached(Look):
        name = "cached"
        cacheable = True

    assert (Tool.cacheable, Tool.cache_scope, Tool.cache_ttl, Tool.requires_actor) == (False, "tick", None, True)
    async with Engine([Look(), Cached()]) as engine:
        assert (await said(engine, call("add", a=1, b=2))).failure_class == "requires_actor"
        for _ in range(2):
            await said(engine, call("add", a=1, b=2), Scope(actor="ann"))
        assert runs == ["ann", "ann"]
        results = [await said(engine, call("cached", a=1, b=2), Scope(actor="ann", turn=turn)) for turn in (1, 1, 2)]
    assert [result.metadata.cached for result in results] == [None, "tick", None]


@pytest.mark.parametrize("scope", ["tick", "session", "persistent"])
def test_only_the_three_cache_scopes_are_accepted(scope: Any) -> None:
    cached = Add()
    cached.cacheable, cached.cache_scope = True, scope
    Engine([cached])
    cached.cache_scope = "for ever"  # type: ignore[assignment]
    with pytest.raises(UsageError, match="cache_scope='for ever'"):
        Engine([cached])


async def test_execute_receives_actor_and_arguments_and_must_be_implemented() -> None:
    class Empty(Tool):
        name = "empty"
        description = "Nothing yet."
        parameters = {"type": "object", "properties": {}}
        category = "safe_chain"

    async with Engine([Add(), Empty()]) as engine:
        added = await said(engine, call("add", a=1, b=2), Scope(actor="ann"))
        empty = await said(engine, call("empty"), Scope(actor="ann"))
    assert added.structured == {"success": True, "data": 3, "where": "here", "actor": "ann"}
    assert (empty.failure_class, "Empty has no execute method" in str(empty.error)) == ("exception", True)


@pytest.mark.parametrize(
    ("layers", "first"),
    [
        (["mcp", "capability", "builtin"], "builtin"),
        (["mcp", "capability"], "capability"),
        (["mcp"], "mcp"),
        (["builtin", "mcp"], "builtin"),
    ],
)
async def test_a_name_is_resolved_in_builtin_then_capability_then_mcp(layers: list[Any], first: str) -> None:
    """The order does not depend on the order of registration. One tool runs, and the tools that it hides are reported."""
    async with Engine() as engine:
        for layer in layers:
            engine.register(Add(layer), layer=layer)
        result: Any = (await said(engine, call("add", a=1, b=2), Scope(actor="ann"))).structured
        assert len(engine.tools.shadowed) == len(layers) - 1
    assert result["where"] == first


async def test_an_unknown_name_is_a_failure_with_close_and_available_names() -> None:
    async with Engine([Add()]) as engine:
        engine.register(type("Sum", (Add,), {"name": "sum_all"})(), layer="mcp")
        result = await said(engine, call("sumall", a=1, b=2))
        again = await said(engine, call("add", a=1, b=2), Scope(actor="ann"))
    assert (result.status, result.failure_class) == ("error", "unknown_tool")
    assert "Did you mean 'sum_all'? Available now: add, sum_all." in str(result.error)
    assert again.success


@pytest.mark.process
async def test_inline_and_thread_tools_run_in_this_process_and_process_tools_do_not() -> None:
    where: dict[str, int] = {}
    for runner in ("inline", "thread", "process"):
        async with Engine([run_by(facts, runner)]) as engine:
            seen: Any = (await said(engine, call("facts"))).structured
            where[runner] = seen["pid"]
    assert where["inline"] == where["thread"] == os.getpid()
    assert where["process"] != os.getpid()


async def test_is_retryable_error_and_validate_tool_result_match_the_engine() -> None:
    """Both functions work without an engine."""

    class Odd(Add):
        async def execute(self, actor: str, **params: Any) -> Any:
            return "no dict"

    async with Engine([Odd()]) as engine:
        result = await said(engine, call("add", a=1, b=2), Scope(actor="ann"))
    (fault,) = validate_tool_result("no dict")
    assert fault in str(result.error)
    assert (is_retryable_error("connection reset"), is_retryable_error(ValueError("no"))) == (True, False)
