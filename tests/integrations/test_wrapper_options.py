"""The options that wrappers take for tools that the engine does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agent_framework import tool as framework_tool
from agents import Agent as OpenAIAgent
from agents import Runner, function_tool
from langgraph.prebuilt import ToolNode
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from callgate import Engine, Scope, UsageError
from callgate.integrations import import_tools
from callgate.integrations.agent_framework import callgate_middleware
from callgate.integrations.langgraph import CallgateToolNode
from callgate.integrations.openai_agents import callgate_tools
from callgate.integrations.pydantic_ai import CallgateCapability, CallgateToolset
from callgate.tools import ToolOptions
from tests.integrations.agent_framework_agents import ScriptedClient, agent_of
from tests.integrations.contract import Call
from tests.integrations.test_openai_agents_contract import QUIET
from tests.integrations.test_openai_agents_contract import agent_of as openai_agent_of
from tests.integrations.test_openai_agents_contract import told_in as openai_told_in
from tests.integrations.test_pydantic_ai_contract import scripted, told_in
from tests.waiting import PATIENCE_S

_OPTIONS: dict[str, ToolOptions] = {"refund": {"key": "refund:{order}", "timeout_s": 20.0}}


async def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} refunded"


def _wrapped(wrapper: str, engine: Engine, **options: Any) -> Any:
    match wrapper:
        case "capability":
            return CallgateCapability(engine, **options)
        case "toolset":
            return CallgateToolset([refund], engine, **options)
        case "agent framework":
            return callgate_middleware(engine, **options)
        case _:
            return callgate_tools([function_tool(refund)], engine, **options)


async def _run(wrapper: str, engine: Engine, made: Any) -> None:
    """Run an agent that has the wrapper and calls the tool."""
    step = [Call("refund", {"order": "A7"})]
    match wrapper:
        case "capability":
            await Agent(scripted(step, "done"), tools=[refund], capabilities=[made]).run("go")
        case "toolset":
            await Agent(scripted(step, "done"), toolsets=[made]).run("go")
        case "agent framework":
            agent = agent_of(engine, [framework_tool(refund)])
            agent.client, agent.middleware = ScriptedClient(step, "done"), made
            await agent.run("go")
        case _:
            OpenAIAgent(name="shop", tools=made)


_wrappers: Callable[..., Any] = pytest.mark.parametrize("wrapper", ["capability", "toolset", "agent framework", "openai agents"])


@_wrappers
async def test_a_tool_that_the_engine_does_not_have_gets_the_given_options(wrapper: str) -> None:
    async with Engine() as engine:
        await _run(wrapper, engine, _wrapped(wrapper, engine, options=_OPTIONS))
        bound = engine.tools.get("refund")
    assert bound is not None
    assert bound.effect_key is not None
    assert bound.timeout_s == 20


@_wrappers
async def test_options_that_the_engines_own_tool_does_not_have_are_refused(wrapper: str) -> None:
    async with Engine(import_tools([refund])) as engine:
        with pytest.raises(Exception, match=r"options sets key='refund:\{order\}', timeout_s=20.*'refund'.*Give all wrappers"):
            await _run(wrapper, engine, _wrapped(wrapper, engine, options=_OPTIONS))


@pytest.mark.parametrize(
    ("inner", "has"), [({"refund": {"timeout_s": 7}}, "timeout_s=7"), (None, "no timeout_s")], ids=["another value", "none"]
)
async def test_options_of_two_capabilities_that_differ_are_refused_with_both_values_and_what_to_do(inner: Any, has: str) -> None:
    async with Engine() as engine:
        first = CallgateCapability(engine, options={"refund": {"timeout_s": 20}})
        agent = Agent(TestModel(), tools=[Tool(refund)], capabilities=[first, CallgateCapability(engine, options=inner)])
        with pytest.raises(UsageError, match=rf"timeout_s=20.* already has the tool with {has}.*of two capabilities in a list, the last"):
            await agent.run("go")


@pytest.mark.parametrize("given", [refund, "refund", 5], ids=["a function", "a text", "a number"])
async def test_what_is_no_toolset_and_no_list_is_refused_with_what_to_give(given: Any) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match=r"give a toolset, or a list of tools and functions"):
            CallgateToolset(given, engine)


@pytest.mark.parametrize("given", [ToolNode([refund]), refund], ids=["a tool node", "a function"])
async def test_what_is_no_list_of_tools_is_refused_by_the_tool_node_with_what_to_give(given: Any) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match=r"it replaces ToolNode, so give it a list of tools"):
            CallgateToolNode(given, engine)


@pytest.mark.parametrize("word", ["options", "effects"])
async def test_options_of_tools_are_refused_by_the_tool_node_with_where_they_go(word: str) -> None:
    given: Any = {word: {}}
    async with Engine() as engine:
        with pytest.raises(UsageError, match=rf"takes no {word}; give them where the engine is made"):
            CallgateToolNode([refund], engine, **given)


async def test_the_engines_tools_are_refused_by_the_tool_node_with_what_to_give() -> None:
    tools: Any = import_tools([refund])
    async with Engine(tools) as engine:
        with pytest.raises(UsageError, match=r"given refund as a tool of the engine.*CallgateToolNode\(\[refund\], Engine\(import_tools\("):
            CallgateToolNode(tools, engine)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("wait_for_run", "did you mean 'wait_for_run_s'"),
        ("wrap_tool_call", "its calls reach the engine by it"),
        ("run", r"scope=Scope\(run"),
    ],
)
async def test_an_option_that_the_tool_node_does_not_have_is_refused_with_the_one_to_use(word: str, said: str) -> None:
    given: Any = {word: None}
    async with Engine() as engine:
        with pytest.raises(UsageError, match=said):
            CallgateToolNode([refund], engine, **given)


async def test_the_options_of_a_tool_node_are_those_of_the_frameworks_own() -> None:
    async with Engine() as engine:
        node = CallgateToolNode([refund], engine, name="payments", tags=["money"], handle_tool_errors=False, messages_key="chat")
    assert (node.name, node.tags) == ("payments", ["money"])


@_wrappers
async def test_a_second_wrapper_may_give_the_same_options(wrapper: str) -> None:
    async with Engine() as engine:
        for _ in range(2):
            await _run(wrapper, engine, _wrapped(wrapper, engine, options=_OPTIONS))
        assert engine.tools.names() == ["refund"]


@_wrappers
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"refund": {"timeout": 5}}, "timeout"),
        ({"refund": {"name": "pay"}}, "sets the name of 'refund'"),
        ({"refund": {"effect": "non"}}, "has the effect 'non'"),
        ({"refund": 5}, "must be a mapping"),
        ([], "must be a mapping"),
    ],
    ids=["unknown", "name", "effect", "no options", "no mapping"],
)
async def test_options_that_cannot_be_used_are_refused_when_the_wrapper_is_made(wrapper: str, options: Any, said: str) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match=said):
            _wrapped(wrapper, engine, options=options)


@_wrappers
@pytest.mark.parametrize(("scope", "said"), [("ann", "'ann'"), (Scope, "<class 'callgate.calls.Scope'>")], ids=["text", "class"])
async def test_a_scope_that_is_none_is_refused_when_the_wrapper_is_made(wrapper: str, scope: Any, said: str) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match=f"The scope of the wrapper is {said}; give callgate.Scope"):
            _wrapped(wrapper, engine, scope=scope)


@pytest.mark.parametrize(
    "tools", ["refund", None, {"refund": refund}, [refund], [5]], ids=["text", "none", "mapping", "function", "number"]
)
async def test_what_is_no_list_of_the_sdks_tools_is_refused(tools: Any) -> None:
    """A function would be left out of the route, and the SDK would refuse it later."""
    async with Engine() as engine:
        with pytest.raises(UsageError, match="callgate_tools was given"):
            callgate_tools(tools, engine)


async def _told_about_a_timeout(tool: str, engine: Engine) -> str:
    """Run an agent whose tool has its framework's own timeout and does not end. Return what the model reads."""

    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    step = [Call("hang")]
    if tool == "function tool":
        openai_agent = openai_agent_of(engine, [function_tool(hang, timeout=0.1)], step, "done")
        return openai_told_in(await Runner.run(openai_agent, "go", run_config=QUIET))["c1"].text
    capabilities = [CallgateCapability(engine)]
    if tool == "tool":
        agent = Agent(scripted(step, "done"), tools=[Tool(hang, timeout=0.1)], capabilities=capabilities)
    elif tool == "toolset":
        agent = Agent(scripted(step, "done"), toolsets=[FunctionToolset([hang], timeout=0.1)], capabilities=capabilities)
    else:
        toolset = FunctionToolset([hang], timeout=0.1)
        for one in import_tools([toolset]):
            engine.register(one)
        agent = Agent(scripted(step, "done"), toolsets=[CallgateToolset(toolset, engine)])
    return told_in((await agent.run("go")).all_messages())["c1"].text


@pytest.mark.parametrize("tool", ["function tool", "tool", "toolset", "imported toolset"])
async def test_a_frameworks_own_timeout_is_the_engines_and_the_model_reads_that_the_outcome_is_not_known(tool: str) -> None:
    async with Engine() as engine:
        told = await asyncio.wait_for(_told_about_a_timeout(tool, engine), PATIENCE_S)
        bound = engine.tools.get("hang")
    assert bound is not None
    assert bound.timeout_s == 0.1
    assert "did not end within 0.1 s" in told
    assert "It may have taken effect. It was not run again." in told


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"key": "{order}"}, r"CallgateCapability\(options=\{'key': ...\}\) has '\{order\}' as the options of the tool 'key'"),
        ({"refund": {"idempotency_key": "{order}"}}, "did you mean 'key'"),
    ],
)
def test_options_of_the_wrong_form_are_refused_with_the_right_one(options: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        CallgateCapability(Engine(), options=options)


def test_a_class_instead_of_an_engine_is_refused_as_a_class() -> None:
    with pytest.raises(UsageError, match="was given the class Engine as its engine"):
        CallgateCapability(Engine)  # type: ignore[arg-type]


async def test_an_entry_for_no_tool_of_the_agent_names_the_capability() -> None:
    agent = Agent(scripted("done"), tools=[refund], capabilities=[CallgateCapability(Engine(), effects={"refnd": "none"})])
    with pytest.raises(UsageError, match=r"^CallgateCapability\(effects=...\) has an entry for 'refnd'"):
        await agent.run("go")
