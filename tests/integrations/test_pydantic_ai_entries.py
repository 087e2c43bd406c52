"""Effects and options for tools of Pydantic AI that an agent does not show in each step, or does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, PromptedOutput, RunContext, TextOutput, ToolOutput
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from callgate import Engine
from callgate.errors import UsageError
from callgate.integrations import import_tools
from callgate.integrations.pydantic_ai import CallgateCapability
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_pydantic_ai_contract import scripted

ASKS: Any = {"delete": {"requires_approval": True}}
STEPS = ([Call("read", {})], [Call("delete", {}, id="c2")], "done")


def read() -> str:
    return "read"


def delete() -> str:
    return "deleted"


def only_later(ctx: RunContext[Any], name: str) -> bool:
    return name != "delete" or ctx.run_step > 1


async def prepare(ctx: RunContext[None], tool: ToolDefinition) -> ToolDefinition | None:
    return tool if only_later(ctx, tool.name) else None


def dynamic(ctx: RunContext[None]) -> AbstractToolset[None]:
    return FunctionToolset([read, delete] if ctx.run_step > 1 else [read])


TOOLSETS: dict[str, Any] = {
    "filtered": FunctionToolset([read, delete]).filtered(lambda ctx, tool: only_later(ctx, tool.name)),
    "prepared": FunctionToolset([read, Tool(delete, prepare=prepare)]),
    "prepared toolset": FunctionToolset([read, delete]).prepared(lambda ctx, tools: [one for one in tools if only_later(ctx, one.name)]),
    "dynamic": dynamic,
}


def agent_with(engine: Engine, toolsets: Sequence[Any], options: Any, **given: Any) -> Agent[None, Any]:
    output: Any = given.pop("output_type", [str, DeferredToolRequests])
    return Agent(
        scripted(*STEPS), toolsets=toolsets, output_type=output, capabilities=[CallgateCapability(engine, options=options)], **given
    )


@pytest.mark.parametrize("kind", TOOLSETS)
async def test_options_for_a_tool_that_a_step_does_not_show_count_when_it_is_shown(kind: str) -> None:
    async with Engine() as engine:
        result = await agent_with(engine, [TOOLSETS[kind]], ASKS).run("go")
    assert isinstance(result.output, DeferredToolRequests)
    assert [call.tool_name for call in result.output.approvals] == ["delete"]


async def test_an_entry_that_no_tool_has_matched_yet_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine() as engine:
        agent = agent_with(engine, [dynamic], {"delte": {"requires_approval": True}})
        await agent.run("go")
        await agent.run("go")
    logged = [one.getMessage() for one in caplog.records if "'delte'" in one.getMessage()]
    assert len(logged) == 1
    assert "no tool of that name has come yet" in logged[0]


@pytest.mark.parametrize(
    "toolset",
    [
        FunctionToolset([read, delete]).filtered(lambda ctx, tool: True),
        FunctionToolset([read]).prefixed("shop"),
        FunctionToolset([read]).renamed({"look": "read"}),
    ],
    ids=["filtered", "prefixed", "renamed"],
)
async def test_an_entry_for_no_tool_of_a_known_toolset_ends_the_run(toolset: Any) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match="has an entry for 'delte', which is none of the tools"):
            await agent_with(engine, [toolset], {"delte": {"requires_approval": True}}).run("go")


@pytest.mark.parametrize(
    ("toolset", "name"),
    [(FunctionToolset([read]).prefixed("shop"), "shop_read"), (FunctionToolset([read]).renamed({"look": "read"}), "look")],
)
async def test_the_names_of_hidden_tools_are_those_that_the_agent_would_show(toolset: AbstractToolset[None], name: str) -> None:
    hidden = toolset.filtered(lambda ctx, tool: False)
    async with Engine() as engine:
        agent = Agent(scripted("done"), toolsets=[hidden], capabilities=[CallgateCapability(engine, effects={name: "none"})])
        assert (await agent.run("go")).output == "done"


async def test_an_entry_for_an_output_function_says_that_it_is_not_a_tool() -> None:
    def transfer() -> str:
        return "sent"

    async with Engine() as engine:
        agent = agent_with(engine, [], {"transfer": {"requires_approval": True}}, output_type=ToolOutput(transfer, name="transfer"))
        with pytest.raises(UsageError, match="An output function is not a tool"):
            await agent.run("go")


def paying() -> tuple[list[str], Any]:
    """Return a list, and a function that adds what it pays to it."""
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return f"{order} paid"

    return paid, pay


OUTPUTS: dict[str, Any] = {
    "bare": (lambda pay: pay, [Call("final_result", {"order": "A7"})]),
    "named": (lambda pay: ToolOutput(pay, name="settle"), [Call("settle", {"order": "A7"})]),
    "text": (TextOutput, "A7"),
    "prompted": (PromptedOutput, '{"order": "A7"}'),
}


@pytest.mark.parametrize("kind", OUTPUTS)
async def test_an_output_function_with_the_name_of_a_gated_tool_does_not_run(kind: str) -> None:
    paid, pay = paying()
    output, message = OUTPUTS[kind]
    engine = Engine(import_tools([pay], options={"pay": {"requires_approval": True}}))
    agent: Agent[None, Any] = Agent(scripted(message), output_type=output(pay), capabilities=[CallgateCapability(engine)])
    async with engine:
        with pytest.raises(UsageError, match="The output function 'pay' would run without callgate"):
            await agent.run("go")
    assert not paid


async def test_an_output_function_with_an_entry_does_not_run_if_the_tools_of_the_agent_are_not_known() -> None:
    paid, pay = paying()
    async with Engine() as engine:
        gate = CallgateCapability(engine, options={"pay": {"requires_approval": True}})
        message = [Call("final_result", {"order": "A7"})]
        agent: Agent[None, Any] = Agent(scripted(message), toolsets=[dynamic], output_type=pay, capabilities=[gate])
        with pytest.raises(UsageError, match="The output function 'pay' would run without callgate"):
            await agent.run("go")
    assert not paid


async def test_that_the_policies_do_not_see_an_output_function_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    paid, pay = paying()
    for policies in ([], [WrittenPolicy({})]):
        async with Engine(policies=policies) as engine:
            message = [Call("final_result", {"order": "A7"})]
            for _ in range(2):
                agent: Agent[None, Any] = Agent(scripted(message), output_type=pay, capabilities=[CallgateCapability(engine)])
                assert (await agent.run("go")).output == "A7 paid"
    logged = [one.getMessage() for one in caplog.records if "output function" in one.getMessage()]
    assert logged == ["The output function pay runs without callgate: no rule counts for it. If it has an effect, make it a tool."]
    assert len(paid) == 4
