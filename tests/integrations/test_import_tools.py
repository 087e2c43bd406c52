"""`import_tools` and `ExternalTool`: tools of other frameworks and plain functions as tools of an engine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import ToolError
from examples.remote_runner.near import RemoteRunner
from langchain_core.tools import tool as langchain_tool
from langgraph.prebuilt import ToolNode
from pydantic_ai.tools import Tool as PydanticTool

from callgate import Engine, RawCall, ToolContext, UsageError, tool
from callgate.calls import Image, Text
from callgate.integrations import ExternalTool, import_tools
from callgate.integrations.external_tool import in_own_thread
from tests.engine_calls import call, said

_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}


@langchain_tool
def lookup(item: str) -> str:
    """Look an item up."""
    return item


def price(item: str) -> int:
    """Look up a price."""
    return len(item)


async def _refund(context: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"refunded": arguments["order"], "id": context.call_id}


async def test_tools_of_several_frameworks_and_functions_are_registered_together_with_their_effects() -> None:
    @langchain_tool
    def look(item: str) -> str:
        """Look at an item."""
        return item

    @tool(effect="none")
    def own(item: str) -> str:
        """Look at an item of one's own."""
        return item

    tools = import_tools([price, look, PydanticTool(price, name="cost"), own], {"price": "none", "look": "none"})
    assert tools[-1] is own
    async with Engine(tools) as engine:
        effects = {one.name: one.effect for one in engine.tools}
        outcomes = [await engine.call(RawCall(name=name, arguments={"item": "pear"})) for name in effects]
    assert effects == {"price": "none", "look": "none", "cost": "once", "own": "none"}
    assert [one.message()["content"] for one in outcomes] == ["4", "pear", "4", "pear"]


async def test_every_option_of_a_tool_can_be_given() -> None:
    tools = import_tools([price], options={"price": {"effect": "idempotent", "timeout_s": 3, "key": "price:{item}", "parallel": 2}})
    async with Engine(tools) as engine:
        (bound,) = engine.tools
    assert (bound.effect, bound.timeout_s, bound.parallel, bound.effect_key is not None) == ("idempotent", 3, 2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([price], {"prise": "none"}), "Did you mean 'price'"),
        (([price], {"price": "non"}), "must be one of"),
        (([3],), "is not a tool"),
        (("price",), "takes a list"),
        ((price,), "'price' \\(a function\\); it takes a list of tools. Give a list also for one tool"),
        (([int],), "is not a tool"),
        ((lookup,), "'lookup' .*; it takes a list of tools. Give a list also for one tool"),
        (([[price]],), "Give one list without lists in it"),
        ((ToolNode([lookup]),), "ToolNode\\); it takes a list of tools. Give the tools of the node"),
        (([ToolNode([lookup])],), "not a tool. Give the tools of the node"),
    ],
    ids=["name", "effect", "number", "text", "no list", "class", "one tool", "nested", "node", "node in a list"],
)
def test_a_mistake_is_a_usage_error_that_says_what_to_change(arguments: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Engine(import_tools(*arguments))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"price": {"timeout": 3}}, "did you mean 'timeout_s'"),
        ({"prices": {"timeout_s": 3}}, "Did you mean 'price'"),
        ({"price": {"name": "cost"}}, "stays the framework's own"),
        ({"price": {"effect": "none"}}, "twice"),
    ],
)
def test_a_mistake_in_the_options_is_a_usage_error_that_says_what_to_change(options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        import_tools([price], {"price": "none"}, options=options)


def test_a_tool_of_callgate_keeps_its_own_options() -> None:
    @tool(effect="none")
    def own(item: str) -> str:
        """Look."""
        return item

    with pytest.raises(UsageError, match="Set it where the tool is declared"):
        import_tools([own], {"own": "once"})


async def test_an_external_tool_gets_the_running_call_and_the_valid_arguments() -> None:
    refund = ExternalTool(_refund, name="refund", description="Refund an order.", parameters=_SCHEMA)
    async with Engine([refund]) as engine:
        done = await engine.call(RawCall(name="refund", arguments={"order": "A7"}, id="c1"))
        refused = await engine.call(RawCall(name="refund", arguments={}))
    assert done.message()["content"] == '{"refunded":"A7","id":"c1"}'
    assert "order" in refused.message()["content"]


async def test_a_plain_function_runs_in_a_thread_as_an_external_tool() -> None:
    refund = ExternalTool(in_own_thread(lambda context, arguments: arguments["order"]), name="refund", parameters=_SCHEMA)
    async with Engine([refund]) as engine:
        done = await engine.call(RawCall(name="refund", arguments={"order": "A7"}))
    assert done.message()["content"] == "A7"


def test_an_external_tool_without_a_schema_or_with_an_unknown_option_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="a JSON Schema"):
        ExternalTool(_refund, name="refund")
    with pytest.raises(UsageError, match="did you mean 'timeout_s'"):
        ExternalTool(_refund, name="refund", parameters=_SCHEMA, timeout=3)  # type: ignore[call-arg]


def test_a_framework_tool_that_is_to_run_in_a_process_is_refused_at_once_and_the_error_says_what_to_use() -> None:
    look = PydanticTool(price, name="look")
    with pytest.raises(UsageError, match=r"runs in this process.*plain function with @tool\(name='look', runner='process'\)"):
        import_tools([look], options={"look": {"runner": "process"}})
    with pytest.raises(UsageError, match="runs in this process"):
        ExternalTool(_refund, name="refund", parameters=_SCHEMA, runner="process")


def test_a_framework_tool_that_is_to_run_on_another_machine_is_refused_at_registration() -> None:
    refund = ExternalTool(_refund, name="refund", parameters=_SCHEMA, runner="far")
    with pytest.raises(UsageError, match="belongs to an object of this process"):
        Engine([refund], runners={"far": RemoteRunner("127.0.0.1", 1, "x" * 32)})


@pytest.mark.parametrize("runner", ["inline", "thread"])
async def test_a_framework_tool_runs_on_the_runners_of_this_process(runner: str) -> None:
    async with Engine(import_tools([PydanticTool(price, name="look")], options={"look": {"runner": runner}})) as engine:
        done = await engine.call(RawCall(name="look", arguments={"item": "pear"}))
    assert done.message()["content"] == "4"


async def test_a_plain_function_may_run_in_a_process() -> None:
    async with Engine(import_tools([price], options={"price": {"runner": "process"}})) as engine:
        done = await engine.call(RawCall(name="price", arguments={"item": "pear"}))
    assert done.message()["content"] == "4"


@pytest.mark.parametrize(
    ("module", "framework", "package"),
    [
        ("langchain", "langchain", "langchain"),
        ("langgraph", "langgraph", "langgraph"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai-slim"),
        ("openai_agents", "agents", "openai-agents"),
        ("agent_framework", "agent_framework", "agent-framework-core"),
    ],
)
def test_a_framework_that_is_missing_is_a_usage_error_that_names_its_package(module: str, framework: str, package: str) -> None:
    code = f"import sys; sys.modules['{framework}'] = None; import callgate.integrations; import callgate.integrations.{module}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UsageError" in ended.stderr.splitlines()[-1]
    assert f"pip install '{package}" in ended.stderr


def test_importing_callgate_integrations_imports_no_framework() -> None:
    frameworks = ("langchain_core", "langgraph", "pydantic_ai", "agents", "agent_framework")
    code = f"import sys, callgate.integrations; print([one for one in {frameworks} if one in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("give", [lambda one: Engine([one]), lambda one: Engine().register(one), tool], ids=["Engine", "register", "@tool"])
def test_a_frameworks_tool_that_is_given_as_it_is_is_refused_by_its_name_with_what_makes_a_tool_of_it(give: Any) -> None:
    @langchain_tool
    def search(query: str) -> str:
        """Search."""
        return query

    with pytest.raises(UsageError, match=r"StructuredTool.*callgate\.integrations\.import_tools") as caught:
        give(search)
    assert "args_schema" not in str(caught.value)


def _snap(month: str) -> list[Any]:
    """Take a picture."""
    if month == "never":
        raise ToolError([{"type": "text", "text": "no picture of never"}])
    return [
        {"type": "text", "text": month},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    ]


async def _snap_async(month: str) -> list[Any]:
    """Take a picture."""
    return _snap(month)


@pytest.mark.parametrize("made", [beta_tool(name="snap")(_snap), beta_async_tool(name="snap")(_snap_async)], ids=["sync", "async"])
async def test_a_tool_of_anthropics_sdk_runs_with_its_schema_and_its_images(made: Any) -> None:
    async with Engine(import_tools([made], effects={"snap": "none"})) as engine:
        (schema,) = engine.schemas("anthropic")
        shown = await said(engine, call("snap", month="May"))
        failed = await said(engine, call("snap", month="never"))
    assert (schema["name"], schema["description"], list(schema["input_schema"]["properties"])) == ("snap", "Take a picture.", ["month"])
    assert shown.content == (Text(text="May"), Image(data="iVBORw0KGgo=", mime_type="image/png"))
    assert (failed.status, failed.failure_class, failed.error) == ("error", "tool_declared", "no picture of never")
