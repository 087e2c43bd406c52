"""A yes that a human gives through a framework counts only for the question that the human has seen."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agent_framework
import agents
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.tools import Tool

from callgate import Answered, Ask, Engine, RawCall, Scope, SqliteJournal, inbox
from callgate._json import decode
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from callgate.integrations.pydantic_ai import CallgateToolset, recorded_answers
from tests.integrations import agent_framework_agents as framework_agents
from tests.integrations import test_openai_agents_contract as openai_agents
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

_PAY = Call("pay", {"amount": 5})


class Driver(ABC):
    """A framework's agent that makes one call, and is resumed in another process with a yes to it."""

    @abstractmethod
    def tool(self, function: Callable[..., Any]) -> Any: ...
    @abstractmethod
    async def begin(self, engine: Engine, tool: Any) -> None:
        """Run the agent until it waits for a human."""

    @abstractmethod
    async def say_yes(self, engine: Engine, tool: Any) -> str:
        """Resume the agent. Return what the model, or the human who is asked again, reads about the call."""


class PydanticAI(Driver):
    def tool(self, function: Callable[..., Any]) -> Any:
        return Tool(function)

    def agent(self, engine: Engine, tool: Any) -> Agent[None, Any]:
        return Agent(scripted([_PAY], "done"), toolsets=[CallgateToolset([tool], engine)], output_type=[str, DeferredToolRequests])

    async def begin(self, engine: Engine, tool: Any) -> None:
        self.result = await self.agent(engine, tool).run("go")

    async def say_yes(self, engine: Engine, tool: Any) -> str:
        return await self.resume(engine, tool, DeferredToolResults(approvals={"c1": True}))

    async def resume(self, engine: Engine, tool: Any, results: DeferredToolResults) -> str:
        messages = self.result.all_messages()
        self.result = await self.agent(engine, tool).run(message_history=messages, deferred_tool_results=results)
        if isinstance(self.result.output, DeferredToolRequests):
            return str(self.result.output.metadata["c1"]["question"])
        return told_in(self.result.all_messages())["c1"].text


class LangChain(Driver):
    first: BaseMessage = HumanMessage("go")

    def __init__(self) -> None:
        self.saver = InMemorySaver()
        self.config: Any = {"configurable": {"thread_id": "thread"}}

    def tool(self, function: Callable[..., Any]) -> Any:
        return StructuredTool.from_function(coroutine=function, name="pay")

    def graph(self, engine: Engine, tool: Any) -> Any:
        model = ScriptedChat(steps=[says(call("pay", amount=5)), says(text="done")])
        return create_agent(model, [tool], middleware=[CallgateMiddleware(engine)], checkpointer=self.saver)

    async def begin(self, engine: Engine, tool: Any) -> None:
        await self.graph(engine, tool).ainvoke({"messages": [self.first]}, self.config)

    async def say_yes(self, engine: Engine, tool: Any) -> str:
        return await self.resume(engine, tool, {"type": "approve"})

    async def resume(self, engine: Engine, tool: Any, decision: Any) -> str:
        result = await self.graph(engine, tool).ainvoke(Command(resume=decision), self.config)
        for asked in result.get("__interrupt__", ()):
            return str(asked.value.get("action_requests", [asked.value])[0]["description"])
        return str(tool_messages(result)[-1].content)


class LangGraph(LangChain):
    first = AIMessage("", tool_calls=[call("pay", amount=5)], id="m1")

    def graph(self, engine: Engine, tool: Any) -> Any:
        builder = StateGraph(MessagesState)
        builder.add_node("tools", CallgateToolNode([tool], engine))
        builder.add_edge(START, "tools")
        return builder.compile(checkpointer=self.saver)

    async def say_yes(self, engine: Engine, tool: Any) -> str:
        return await self.resume(engine, tool, {"decisions": [{"type": "approve"}]})


class OpenAIAgents(Driver):
    def tool(self, function: Callable[..., Any]) -> Any:
        return agents.function_tool(function)

    async def begin(self, engine: Engine, tool: Any) -> None:
        agent = openai_agents.agent_of(engine, [tool], [_PAY], run="case")
        self.saved = (await agents.Runner.run(agent, "go", run_config=openai_agents.QUIET)).to_state().to_json()

    async def say_yes(self, engine: Engine, tool: Any) -> str:
        agent = openai_agents.agent_of(engine, [tool], "done", run="case")
        state = await agents.RunState.from_json(agent, self.saved)
        state.approve(state.get_interruptions()[0])
        return openai_agents.told_in(await agents.Runner.run(agent, state, run_config=openai_agents.QUIET))["c1"].text


class AgentFramework(Driver):
    def tool(self, function: Callable[..., Any]) -> Any:
        return agent_framework.tool(function)

    async def begin(self, engine: Engine, tool: Any) -> None:
        self.session = agent_framework.AgentSession(session_id="session")
        agent = framework_agents.agent_of(engine, [tool], [_PAY])
        (self.request,) = (await agent.run("go", session=self.session)).user_input_requests

    async def say_yes(self, engine: Engine, tool: Any) -> str:
        agent = framework_agents.agent_of(engine, [tool], "done")
        message = agent_framework.Message("user", [self.request.to_function_approval_response(approved=True)])
        asked = (await agent.run(message, session=self.session)).user_input_requests
        if asked:
            self.request = asked[0]
            return str(asked[0].additional_properties["question"])
        return framework_agents.told_by(agent)["c1"].text


_DRIVERS = [PydanticAI, LangChain, LangGraph, OpenAIAgents, AgentFramework]
_ASK_AGAIN = [PydanticAI, LangChain, LangGraph, AgentFramework]


class Payments:
    """The payments that were made, and the tool that makes them, in an older and a newer version."""

    def __init__(self, folder: Path) -> None:
        self.made: list[int] = []
        self.file = folder / "calls.db"

    def tool(self, driver: Driver, *, newer: bool = False) -> Any:
        async def pay(amount: int) -> str:
            self.made.append(amount)
            return f"{amount} paid"

        pay.__doc__ = "Pay an amount." if not newer else "Pay an amount now."
        return driver.tool(pay)

    def engine(self, tool: Any) -> Engine:
        policy = WrittenPolicy({"pay": Ask(question="Pay it?", rule="ask")})
        return Engine(import_tools([tool]), policies=[policy], journal=SqliteJournal(self.file))

    async def begin(self, driver: Driver) -> str:
        """Run an agent until it waits for a human. Return the id of the question."""
        tool = self.tool(driver)
        async with self.engine(tool) as engine:
            await driver.begin(engine, tool)
            return next(event.call for event in engine.journal.read() if event.kind == "call.suspended")

    async def repeat_with_another_id(self, driver: Driver) -> None:
        """Make the call that waits again in the same run, as one of another message."""
        async with self.engine(self.tool(driver)) as engine:
            (received,) = (decode(event.body) for event in engine.journal.read() if event.kind == "call.received")
            scope = Scope(**received["scope"] | {"message_id": "later"}, run=next(iter(engine.journal.read())).run)
            outcome = await engine.call(RawCall(name="pay", arguments={"amount": 5}, id="d1"), scope)
            assert isinstance(outcome, Answered), outcome

    async def say_yes(self, driver: Driver, *, newer: bool = False) -> str:
        tool = self.tool(driver, newer=newer)
        async with self.engine(tool) as engine:
            return await driver.say_yes(engine, tool)


@pytest.fixture
def payments(tmp_path: Path) -> Payments:
    return Payments(tmp_path)


@pytest.fixture(params=_DRIVERS, ids=lambda one: one.__name__)
def driver(request: pytest.FixtureRequest) -> Driver:
    made: Driver = request.param()
    return made


async def test_a_yes_to_the_open_question_runs_the_call(payments: Payments, driver: Driver) -> None:
    await payments.begin(driver)
    assert "5 paid" in await payments.say_yes(driver)
    assert payments.made == [5]


async def test_a_yes_does_not_run_a_call_for_which_somebody_has_sent_other_arguments_that_the_tool_refuses(
    payments: Payments, driver: Driver
) -> None:
    asked = await payments.begin(driver)
    await asyncio.to_thread(inbox.approve, payments.file, asked, by="ann", arguments={"amount": "many"})
    told = await payments.say_yes(driver)
    assert payments.made == []
    assert "ann could not be used" in told
    assert "many" in told
    if type(driver) in _ASK_AGAIN:
        assert "5 paid" in await payments.say_yes(driver)


@pytest.mark.parametrize("denied", [True, False], ids=["denied", "not answered"])
async def test_a_yes_to_a_question_about_an_older_tool_does_not_run_the_newer_one(payments: Payments, driver: Driver, denied: bool) -> None:
    asked = await payments.begin(driver)
    if denied:
        await asyncio.to_thread(inbox.deny, payments.file, asked, by="ann", reason="fraud")
    told = await payments.say_yes(driver, newer=True)
    assert payments.made == []
    assert "fraud" in told if denied else "earlier question" in told
    assert denied or not ("said no" in told or "Do not try it again" in told)
    if not denied and type(driver) in _ASK_AGAIN:
        assert "5 paid" in await payments.say_yes(driver, newer=True)


async def test_a_yes_does_not_run_a_call_whose_approval_an_identical_call_has_used(payments: Payments, driver: Driver) -> None:
    asked = await payments.begin(driver)
    await asyncio.to_thread(inbox.approve, payments.file, asked, by="ann")
    await payments.repeat_with_another_id(driver)
    assert payments.made == [5]
    told = await payments.say_yes(driver)
    assert payments.made == [5]
    assert "answered already" in told
    if type(driver) in _ASK_AGAIN:
        assert "5 paid" in await payments.say_yes(driver)


@pytest.mark.parametrize("answer", ["yes", "no", "none"])
async def test_a_pydantic_ai_run_goes_on_with_the_recorded_answer_and_only_with_that(payments: Payments, answer: str) -> None:
    driver = PydanticAI()
    asked = await payments.begin(driver)
    if answer != "none":
        await asyncio.to_thread(inbox.approve if answer == "yes" else inbox.deny, payments.file, asked, by="ann")
    tool = payments.tool(driver)
    async with payments.engine(tool) as engine:
        told = await driver.resume(engine, tool, recorded_answers(driver.result.output))
    assert payments.made == ([5] if answer == "yes" else [])
    assert {"yes": "5 paid", "no": "ann said no", "none": "Pay it?"}[answer] in told


async def test_recorded_answers_approve_no_call_that_the_engine_has_not_asked_about() -> None:
    ran: list[str] = []

    async def remove(path: str) -> str:
        """Remove a file."""
        ran.append(path)
        return "removed"

    async with Engine(import_tools([Tool(remove)])) as engine:
        toolset = CallgateToolset([Tool(remove, requires_approval=True)], engine, scope=Scope())
        agent = Agent(scripted([Call("remove", {"path": "a"})], "done"), toolsets=[toolset], output_type=[str, DeferredToolRequests])
        first = await agent.run("go")
        again = await agent.run(message_history=first.all_messages(), deferred_tool_results=recorded_answers(["c1"]))
    assert isinstance(again.output, DeferredToolRequests)
    assert ran == []
