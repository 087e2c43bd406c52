"""LangGraph keeps the answers to all interrupts of a task and hands them out again. A decision counts only for what it was given to."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.langgraph import CallgateToolNode
from tests.integrations.langchain_agents import call, says, tool_messages

YES: dict[str, Any] = {"type": "approve"}
NO: dict[str, Any] = {"type": "reject", "message": "never"}
EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "B", "cents": 1}}}
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Shop:
    """A graph whose node refunds orders. A human has to approve refunds above a limit."""

    def __init__(self, *, by_id: bool = False) -> None:
        self.paid: list[int] = []
        self.limit = 50
        self._by_id = by_id
        self._asked: str | None = None

        @tool
        def refund(order: str, cents: int) -> str:
            """Refund an order."""
            self.paid.append(cents)
            return f"{cents} paid"

        options: Any = {"refund": {"requires_approval": self._is_large}}
        self.engine = Engine(import_tools([refund], options=options))
        builder = StateGraph(MessagesState)
        builder.add_node("tools", CallgateToolNode([refund], self.engine))
        builder.add_edge(START, "tools")
        self._graph: Any = builder.compile(checkpointer=InMemorySaver())

    def _is_large(self, arguments: dict[str, Any]) -> bool:
        return bool(arguments["cents"] > self.limit)

    def start(self) -> Any:
        made = says(call("refund", "A", order="A", cents=60), call("refund", "B", order="B", cents=120))
        return self._run({"messages": [made]})

    def resume(self, *decisions: dict[str, Any]) -> Any:
        given: Any = {"decisions": list(decisions)}
        return self._run(Command(resume={self._asked: given} if self._by_id else given))

    def restart(self) -> Any:
        return self._run(None)

    def _run(self, given: Any) -> Any:
        result = self._graph.invoke(given, THREAD)
        self._asked = result["__interrupt__"][0].id if "__interrupt__" in result else None
        return result

    def deny(self, call_id: str, result: Any) -> None:
        asked = result["__interrupt__"][0].value["action_requests"]
        approval = next(one["approval_id"] for one in asked if one["tool_call_id"] == call_id)
        self.engine.deny_sync(approval, by="ada", reason="no")


@pytest.fixture(params=[False, True], ids=["resumed", "resumed by the id of the interrupt"])
def shop(request: pytest.FixtureRequest) -> Any:
    shop = Shop(by_id=request.param)
    yield shop
    shop.engine.close_sync()


def test_a_decision_counts_for_its_call_although_another_call_runs_without_one(shop: Shop) -> None:
    shop.start()
    shop.limit = 100
    assert "__interrupt__" not in shop.resume(YES, YES)
    assert shop.paid == [60, 120]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("last", "paid"), [(NO, []), (EDIT, [1]), (YES, [120])], ids=["no", "edit", "yes"])
def test_the_last_decision_about_a_call_counts_and_no_older_one(shop: Shop, last: dict[str, Any], paid: list[int], named: bool) -> None:
    asked = shop.start()
    again = shop.resume(YES)  # too few
    assert "(needed: 2, came: 1), so none is about refund (A)." in str(again["__interrupt__"][0].value)
    shop.deny("A", asked)
    result = shop.resume(last if not named else {**last, "tool_call_id": "B"})
    if not named:  # two calls were asked about, so it is not clear which one it is about
        assert [one["tool_call_id"] for one in result["__interrupt__"][0].value["action_requests"]] == ["B"]
        assert shop.paid == []
        result = shop.resume(last)
    assert shop.paid == paid
    assert ["never" in message.content for message in tool_messages(result)] == [False, last is NO]


def test_an_older_decision_does_not_count_when_the_graph_goes_on_without_a_new_one(shop: Shop) -> None:
    asked = shop.start()
    shop.resume(YES)  # too few
    shop.deny("A", asked)
    assert [one["tool_call_id"] for one in shop.restart()["__interrupt__"][0].value["action_requests"]] == ["B"]
    assert shop.paid == []
    shop.resume(NO)
    assert shop.paid == []


def test_a_decision_with_the_id_of_its_call_is_kept_and_only_the_other_call_is_asked_about_again(shop: Shop) -> None:
    shop.start()
    again = shop.resume({**YES, "tool_call_id": "B"})
    assert [one["tool_call_id"] for one in again["__interrupt__"][0].value["action_requests"]] == ["A"]
    shop.resume(NO)
    assert shop.paid == [120]


@pytest.mark.parametrize(("then", "paid", "told"), [(NO, [], "never"), (EDIT, [], "other arguments"), (YES, [120], "120 paid")])
def test_a_later_decision_that_names_a_call_counts_until_the_call_has_started(shop: Shop, then: Any, paid: list[int], told: str) -> None:
    shop.start()
    shop.resume({**YES, "tool_call_id": "B"})
    result = shop.resume({**NO, "tool_call_id": "A"}, {**then, "tool_call_id": "B"})
    assert shop.paid == paid
    assert told in tool_messages(result)[1].content


def test_a_decision_is_kept_when_another_call_has_to_be_decided_as_well(shop: Shop) -> None:
    shop.limit = 100
    shop.start()
    shop.limit = 50
    shop.paid.clear()
    again = shop.resume(YES)
    assert "__interrupt__" not in again
    assert shop.paid == [120]
