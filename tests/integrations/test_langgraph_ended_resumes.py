"""A resume of a graph that ends before an approved call was started, as by a lost client: the next decision about the call counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Ask, Engine
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from callgate.stage_types import ValidatedCall
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages
from tests.waiting import soon

YES: dict[str, Any] = {"type": "approve"}
NO: dict[str, Any] = {"type": "reject", "message": "too dear"}
EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 3}}}
THREAD: Any = {"configurable": {"thread_id": "t"}}
CALLS = (call("pay", "c1", amount=5), call("pay", "c2", amount=6))


def agent_of(tool: Any, engine: Engine) -> Any:
    model = ScriptedChat(steps=[says(CALLS[0]), says(text="done")])
    return create_agent(model, [tool], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())


def node_of(tool: Any, engine: Engine) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [says(*CALLS)]})
    builder.add_node("tools", CallgateToolNode([tool], engine))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return builder.compile(checkpointer=InMemorySaver())


def decided(asked: Any, decision: dict[str, Any]) -> Any:
    """Return what resumes the graph with this decision about all calls that it asks about."""
    answers = [decision for one in asked for _ in one.value.get("action_requests", [one])]
    if "action_requests" in asked[0].value:
        return Command(resume={"decisions": [{**one, "tool_call_id": f"c{place}"} for place, one in enumerate(answers, 1)]})
    return Command(resume={one.id: decision for one in asked})


class Asking:
    """A policy that asks about every call, and once a human has answered, waits until it is told not to."""

    def __init__(self) -> None:
        self.waits = True
        self.waiting = 0

    async def decide(self, call: ValidatedCall) -> Ask:
        if self.waits and any(event.kind == "approval.answered" for event in self.engine.journal.read()):
            self.waiting += 1
            await asyncio.Event().wait()
        return Ask(question="Pay it?", rule="ask")

    engine: Engine


@pytest.mark.parametrize("made", [agent_of, node_of])
@pytest.mark.parametrize(
    ("then", "pays", "told"), [(YES, True, "paid"), (NO, False, "too dear"), (EDIT, False, '{\\"amount\\":3}')], ids=["yes", "no", "edit"]
)
async def test_a_decision_counts_although_an_earlier_resume_has_ended_with_a_yes(
    made: Any, then: dict[str, Any], pays: bool, told: str
) -> None:
    ledger: list[int] = []

    async def pay(amount: int) -> str:
        """Pay an amount."""
        ledger.append(amount)
        return f"{amount} paid"

    tool, policy = StructuredTool.from_function(coroutine=pay, name="pay"), Asking()
    async with Engine(import_tools([tool]), policies=[policy]) as engine:
        policy.engine, graph = engine, made(tool, engine)
        asked = (await graph.ainvoke({"messages": [HumanMessage("go")]}, THREAD))["__interrupt__"]
        resumed = asyncio.create_task(graph.ainvoke(decided(asked, YES), THREAD))
        assert await soon(lambda: policy.waiting)
        resumed.cancel()
        await asyncio.gather(resumed, return_exceptions=True)
        policy.waits = False
        result = await graph.ainvoke(decided((await graph.aget_state(THREAD)).interrupts, then), THREAD)
    texts = [str(message.content) for message in tool_messages(result)]
    assert len(texts) == (1 if made is agent_of else 2)
    assert all(told in text for text in texts)
    assert sorted(ledger) == ([5, 6][: len(texts)] if pays else [])
