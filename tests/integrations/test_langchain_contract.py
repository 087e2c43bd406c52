"""The promises of a wrapper, with LangChain's `create_agent` and with LangGraph's tool node in a graph of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Engine
from callgate.integrations.langchain import CallgateMiddleware
from callgate.integrations.langgraph import CallgateToolNode
from tests.integrations.contract import Call, Said, Told, WrapperContract
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages


def _model(messages: Sequence[Sequence[Call]]) -> ScriptedChat:
    steps = [says(*(call(one.name, one.id, **one.arguments) for one in message)) for message in messages]
    return ScriptedChat(steps=[*steps, says(text="done")])


def _told(result: Any) -> dict[str, Told]:
    return {one.tool_call_id: Told(str(one.content), one.status == "error") for one in tool_messages(result)}


def _decision(said: Said, name: str) -> dict[str, Any]:
    if not said.allow:
        return {"type": "reject", "message": said.reason}
    if said.arguments is None:
        return {"type": "approve"}
    return {"type": "edit", "edited_action": {"name": name, "args": said.arguments}}


class GraphContract(WrapperContract):
    """How both run: `graph` makes the agent's graph."""

    def graph(self, engine: Engine, tools: Sequence[Any], messages: Sequence[Sequence[Call]]) -> Any:
        raise NotImplementedError

    def answer(self, interrupt: Any, says: Mapping[str, Said]) -> Any:
        """Return the value that resumes an interrupt."""
        raise NotImplementedError

    def tool(self, function: Callable[..., Any]) -> Any:
        return langchain_tool(function)

    async def run(
        self,
        engine: Engine,
        tools: Sequence[Any],
        message: Sequence[Call],
        *,
        then: Sequence[Sequence[Call]] = (),
        says: Mapping[str, Said] | None = None,
    ) -> dict[str, Told]:
        graph = self.graph(engine, tools, [message, *then])
        config = {"configurable": {"thread_id": "thread"}}
        result = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
        while interrupts := result.get("__interrupt__"):
            assert says is not None, interrupts
            result = await graph.ainvoke(Command(resume=self.answer(interrupts[0], says)), config)
        assert result["messages"][-1].content == "done"
        return _told(result)

    async def make_again(self, engine: Engine, tools: Sequence[Any], message: Sequence[Call]) -> list[dict[str, Told]]:
        graph = self.graph(engine, tools, [message])
        config = {"configurable": {"thread_id": "thread"}}
        first = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
        before_tools = [one async for one in graph.aget_state_history(config) if "tools" in one.next]
        second = await graph.ainvoke(None, before_tools[0].config)
        return [_told(first), _told(second)]


class TestMiddleware(GraphContract):
    def graph(self, engine: Engine, tools: Sequence[Any], messages: Sequence[Sequence[Call]]) -> Any:
        middleware = [CallgateMiddleware(engine)]
        return create_agent(_model(messages), list(tools), middleware=middleware, checkpointer=InMemorySaver())

    def answer(self, interrupt: Any, says: Mapping[str, Said]) -> Any:
        assert interrupt.value["type"] == "tool_approval"
        return _decision(says[interrupt.value["tool_call_id"]], interrupt.value["name"])


class TestToolNode(GraphContract):
    def graph(self, engine: Engine, tools: Sequence[Any], messages: Sequence[Sequence[Call]]) -> Any:
        model = _model(messages)

        async def ask_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        def after_model(state: MessagesState) -> str:
            last = state["messages"][-1]
            return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

        builder = StateGraph(MessagesState)
        builder.add_node("model", ask_model)
        builder.add_node("tools", CallgateToolNode(tools, engine))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", after_model, ["tools", END])
        builder.add_edge("tools", "model")
        return builder.compile(checkpointer=InMemorySaver())

    def answer(self, interrupt: Any, says: Mapping[str, Said]) -> Any:
        asked = interrupt.value["action_requests"]
        return {"decisions": [_decision(says[one["tool_call_id"]], one["name"]) for one in asked]}

    async def test_all_calls_of_a_message_that_wait_for_a_human_are_asked_in_one_interrupt(self) -> None:
        ledger, engine, tools = self._asking()
        calls = [Call("refund", {"order": f"A{number}"}, f"c{number}") for number in range(3)]
        said = {"c0": Said(allow=True), "c1": Said(allow=False, reason="no"), "c2": Said(allow=True, arguments={"order": "B2"})}
        async with engine:
            told = await asyncio.wait_for(self.run(engine, tools, calls, says=said), 60)
        assert ledger == ["A0", "B2"]
        assert told["c0"].text == "A0 refunded"
        assert told["c1"].is_error
        assert told["c2"].text.startswith("B2 refunded")
