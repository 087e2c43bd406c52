"""A call keeps its principal when another user resumes the graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Engine
from callgate.calls import Scope
from callgate.event_queries import EventQuery
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from callgate.integrations.langgraph import CallgateToolNode
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages, waiting

YES: dict[str, Any] = {"type": "approve"}
NO: dict[str, Any] = {"type": "reject", "message": "never"}


def by_user(request: Any) -> Scope:
    return Scope(principal=request.runtime.config["configurable"].get("langgraph_auth_user_id", ""))


class Shop:
    """A graph that pays at once, and refunds what a human approves. Each message from a user makes the next of the calls."""

    def __init__(self, kind: str, *messages: AIMessage, scope: Any = None) -> None:
        self.done: list[str] = []
        self._kind, self._messages = kind, list(messages)

        @tool
        def pay(cents: int) -> str:
            """Pay."""
            self.done.append(f"paid {cents}")
            return f"{cents} paid"

        @tool
        def refund(cents: int) -> str:
            """Refund."""
            self.done.append(f"refunded {cents}")
            return f"{cents} refunded"

        tools = [pay, refund]
        self.engine = Engine(import_tools(tools, options={"refund": {"requires_approval": True}}))
        scope = scope or Scope()
        if kind == "agent":
            model = ScriptedChat(steps=[step for message in messages for step in (message, says(text="done"))])
            middleware = CallgateMiddleware(self.engine, scope=scope)
            self.graph: Any = create_agent(model, tools, middleware=[middleware], checkpointer=InMemorySaver())
        else:
            builder = StateGraph(MessagesState)
            builder.add_node("tools", CallgateToolNode(tools, self.engine, scope=scope))
            builder.add_edge(START, "tools")
            self.graph = builder.compile(checkpointer=InMemorySaver())

    def say(self, user: str) -> Any:
        message = HumanMessage("go") if self._kind == "agent" else self._messages.pop(0)
        return self.graph.invoke({"messages": [message]}, self.config(user))

    def resume(self, user: str, *decisions: Any) -> Any:
        value = decisions[0] if self._kind == "agent" else {"decisions": list(decisions)}
        return self.graph.invoke(Command(resume=value), self.config(user))

    @staticmethod
    def config(user: str) -> Any:
        return {"configurable": {"thread_id": "t", **({"langgraph_auth_user_id": user} if user else {})}}

    def recorded(self, kind: str) -> list[Any]:
        return [json.loads(event.body) for event in self.engine.journal.find(EventQuery(run="t", kinds=(kind,)))]

    def principals(self, call_id: str) -> set[str]:
        return {body["scope"].get("principal", "") for body in self.recorded("call.received") if body["id"] == call_id}


@pytest.fixture
def made() -> Iterator[Any]:
    shops: list[Shop] = []

    def make(kind: str, *messages: AIMessage, scope: Any = None) -> Shop:
        shops.append(Shop(kind, *messages, scope=scope))
        return shops[-1]

    yield make
    for shop in shops:
        shop.engine.close_sync()


@pytest.mark.parametrize("kind", ["node", "agent"])
@pytest.mark.parametrize("scope", [None, by_user], ids=["user of the server", "scope of the host"])
@pytest.mark.parametrize("user", ["sue", ""], ids=["supervisor", "nobody"])
def test_a_call_that_another_user_approves_runs_once_for_the_user_who_asked(made: Any, kind: str, scope: Any, user: str) -> None:
    shop = made(kind, says(call("refund", "c1", cents=1)), scope=scope)
    shop.say("ann")
    result = shop.resume(user, YES)
    assert tool_messages(result)[0].content == "1 refunded"
    assert shop.done == ["refunded 1"]
    assert shop.principals("c1") == {"ann"}
    assert [body["reason"] for body in shop.recorded("approval.answered")] == ["a human (sue)" if user else "a human"]


@pytest.mark.parametrize("kind", ["node", "agent"])
def test_the_no_of_another_user_is_a_no(made: Any, kind: str) -> None:
    shop = made(kind, says(call("refund", "c1", cents=1)))
    shop.say("ann")
    assert "a human (sue) said no: never" in tool_messages(shop.resume("sue", NO))[0].content
    assert shop.done == []
    assert shop.principals("c1") == {"ann"}


@pytest.mark.parametrize("kind", ["node", "agent"])
def test_another_user_withdraws_a_yes_of_the_engine(made: Any, kind: str) -> None:
    shop = made(kind, says(call("refund", "c1", cents=1)))
    asked = shop.say("ann")["__interrupt__"][0].value
    shop.engine.approve_sync(asked.get("action_requests", [asked])[0]["approval_id"], by="operator")
    assert "never" in tool_messages(shop.resume("sue", NO))[0].content
    assert shop.done == []


@pytest.mark.parametrize("kind", ["node", "agent"])
def test_a_call_in_a_new_message_of_another_user_is_theirs(made: Any, kind: str) -> None:
    shop = made(kind, says(call("refund", "c1", cents=1)), says(call("pay", "c2", cents=2)), says(call("refund", "c1", cents=1)))
    shop.say("ann")
    if kind == "agent":  # a provider refuses a conversation with a call that has no result
        shop.resume("sue", NO)
    shop.say("bob")
    assert shop.done == ["paid 2"]
    assert shop.principals("c2") == {"bob"}
    assert waiting(shop.say("eve")) == ["c1"]
    assert shop.principals("c1") == {"ann", "eve"}


def test_a_call_that_ran_does_not_run_again_for_the_user_who_resumes_the_graph(made: Any) -> None:
    shop = made("node", says(call("pay", "c1", cents=1), call("refund", "c2", cents=2)))
    shop.say("ann")
    result = shop.resume("sue", YES)
    assert [message.content for message in tool_messages(result)] == ["1 paid", "2 refunded"]
    assert shop.done == ["paid 1", "refunded 2"]


def test_decisions_of_another_user_are_about_the_calls_that_are_still_open(made: Any) -> None:
    shop = made("node", says(call("refund", "c1", cents=1), call("refund", "c2", cents=2)))
    shop.say("ann")
    assert waiting(shop.resume("sue", {**YES, "tool_call_id": "c1"})) == ["c2"]
    result = shop.resume("bob", NO)
    assert "a human (bob) said no: never" in tool_messages(result)[1].content
    assert shop.done == ["refunded 1"]


@pytest.mark.parametrize("kind", ["node", "agent"])
def test_a_call_to_which_another_user_gives_other_arguments_in_the_state_is_theirs(made: Any, kind: str) -> None:
    """So nobody's rights are used for arguments that they did not ask for."""
    shop = made(kind, says(call("refund", "c1", cents=1)))
    shop.say("ann")
    message = shop.graph.get_state(shop.config("sue")).values["messages"][-1]
    edited = AIMessage("", tool_calls=[call("refund", "c1", cents=900)], id=message.id)
    shop.graph.update_state(shop.config("sue"), {"messages": [edited]}, as_node="model" if kind == "agent" else START)
    assert waiting(shop.graph.invoke(None, shop.config("sue"))) == ["c1"]
    assert shop.principals("c1") == {"ann", "sue"}
    assert shop.done == []
