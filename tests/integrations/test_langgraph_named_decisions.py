"""A decision counts only for the call that it names, or that has its place in the interrupt that it answers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from callgate.integrations.langgraph import CallgateToolNode
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages, waiting

THREAD: Any = {"configurable": {"thread_id": "t"}}
YES: dict[str, Any] = {"type": "approve"}
NO: dict[str, Any] = {"type": "reject", "message": "never"}
LONG = "x" * 300
"""An id that the engine records as its hash."""


class Shop:
    """A graph that refunds orders, each of which a human has to approve while `asks`."""

    def __init__(self, kind: str, *calls: Any) -> None:
        self.paid: list[int] = []
        self.asks = True

        @tool
        def refund(cents: int) -> str:
            """Refund."""
            self.paid.append(cents)
            return f"{cents} paid"

        options: Any = {"refund": {"requires_approval": lambda arguments: self.asks}}
        self.engine = Engine(import_tools([refund], options=options))
        self._first: Any = HumanMessage("go") if kind == "agent" else AIMessage("", tool_calls=list(calls), id="m1")
        if kind == "agent":
            model = ScriptedChat(steps=[says(*calls), says(text="done")])
            self._graph: Any = create_agent(model, [refund], middleware=[CallgateMiddleware(self.engine)], checkpointer=InMemorySaver())
            return
        builder = StateGraph(MessagesState)
        builder.add_node("tools", CallgateToolNode([refund], self.engine))
        if kind == "send":
            builder.add_conditional_edges(
                START, lambda state: [Send("tools", [one]) for one in state["messages"][-1].tool_calls], ["tools"]
            )
        else:
            builder.add_edge(START, "tools")
        self._graph = builder.compile(checkpointer=InMemorySaver())

    def start(self) -> Any:
        return self._run({"messages": [self._first]})

    def resume(self, *decisions: Any) -> Any:
        return self.resume_with({"decisions": list(decisions)})

    def resume_with(self, value: Any) -> Any:
        return self._run(Command(resume=value))

    def approve_in_the_engine(self, asked: Any, call_id: str) -> None:
        found = [one for each in asked["__interrupt__"] for one in each.value.get("action_requests", [each.value])]
        self.engine.approve_sync(next(one["approval_id"] for one in found if one["tool_call_id"] == call_id), by="ada")

    def _run(self, given: Any) -> Any:
        return self._graph.invoke(given, THREAD)


@pytest.fixture
def made() -> Any:
    shops: list[Shop] = []

    def make(kind: str, *calls: Any) -> Shop:
        shops.append(Shop(kind, *calls))
        return shops[-1]

    yield make
    for shop in shops:
        shop.engine.close_sync()


def named(decision: dict[str, Any], call_id: str) -> dict[str, Any]:
    return {**decision, "tool_call_id": call_id}


@pytest.mark.parametrize("kind", ["node", "send", "agent"])
def test_a_decision_that_names_another_call_counts_for_none(made: Any, kind: str) -> None:
    shop = made(kind, call("refund", "c1", cents=1))
    shop.start()
    given = named(YES, "zz")
    assert waiting(shop.resume_with(given if kind == "agent" else {"decisions": [given]})) == ["c1"]
    assert shop.paid == []


@pytest.mark.parametrize("kind", ["node", "send", "agent"])
@pytest.mark.parametrize("otherwise", ["", "approved in the engine"])
def test_a_decision_about_another_question_is_asked_for_again(made: Any, kind: str, otherwise: str) -> None:
    shop = made(kind, call("refund", "c1", cents=1))
    own = question_of(shop.start())["approval_id"]
    if otherwise:
        shop.engine.approve_sync(own, by="ada")
    asked = shop.resume_with(shaped(kind, {**YES, "approval_id": "t/7/0"}))
    assert (waiting(asked), shop.paid) == (["c1"], [])
    told = f"The decision was about the question 't/7/0', and the open question about refund is '{own}'."
    assert question_of(asked)["description"].startswith(told)
    shop.resume_with(shaped(kind, {**YES, "approval_id": own}))
    assert shop.paid == [1]


def question_of(result: Any) -> Any:
    value = result["__interrupt__"][0].value
    return value.get("action_requests", [value])[0]


def shaped(kind: str, decision: dict[str, Any]) -> dict[str, Any]:
    return decision if kind == "agent" else {"decisions": [decision]}


@pytest.mark.parametrize(
    ("decisions", "left"),
    [
        ([named(YES, "c2"), named(NO, "zz")], ["c1"]),
        ([named(YES, "c2"), named(YES, "c2")], ["c1", "c2"]),
        ([named(YES, "c2"), NO], ["c1"]),
        ([named(NO, "c1"), named(YES, "c1")], ["c1", "c2"]),
    ],
)
def test_a_call_without_one_decision_of_its_own_is_asked_about_again(made: Any, decisions: list[Any], left: list[str]) -> None:
    shop = made("node", call("refund", "c1", cents=1), call("refund", "c2", cents=2))
    shop.start()
    assert waiting(shop.resume(*decisions)) == left
    assert 1 not in shop.paid


@pytest.mark.parametrize("otherwise", ["approved in the engine", "the rule is silent"])
def test_a_no_by_place_is_about_the_calls_of_the_last_interrupt(made: Any, otherwise: str) -> None:
    shop = made("node", call("refund", "c1", cents=1), call("refund", "c2", cents=2))
    shop.start()
    asked = shop.resume(named(YES, "c1"))
    assert waiting(asked) == ["c2"]
    if otherwise == "the rule is silent":
        shop.asks = False
    else:
        shop.approve_in_the_engine(asked, "c2")
    result = shop.resume(NO)
    assert "never" in tool_messages(result)[1].content
    assert shop.paid == [1]


def test_a_call_in_a_task_of_its_own_is_decided_about_by_its_place(made: Any) -> None:
    shop = made("send", call("refund", "c1", cents=1), call("refund", "c2", cents=2))
    asked = shop.start()["__interrupt__"]  # in the order in which the tasks came to ask
    first, second = sorted(asked, key=lambda one: one.value["action_requests"][0]["tool_call_id"])
    shop.resume_with({first.id: {"decisions": [YES]}, second.id: {"decisions": [NO]}})
    assert shop.paid == [1]


@pytest.mark.parametrize("kind", ["node", "agent"])
@pytest.mark.parametrize("otherwise", ["approved in the engine", "the rule is silent"])
@pytest.mark.parametrize("unusable", [False, "no", {"type": "rejected"}, {"decisions": [{"type": "deny"}]}])
def test_an_unusable_decision_lets_no_call_run_although_the_engine_would(made: Any, kind: str, otherwise: str, unusable: Any) -> None:
    shop = made(kind, call("refund", "c1", cents=1))
    asked = shop.start()
    if otherwise == "the rule is silent":
        shop.asks = False
    else:
        shop.approve_in_the_engine(asked, "c1")
    assert waiting(shop.resume_with(unusable)) == ["c1"]
    assert shop.paid == []
    shop.resume_with(NO if kind == "agent" else {"decisions": [NO]})
    assert shop.paid == []


@pytest.mark.parametrize("kind", ["node", "agent"])
@pytest.mark.parametrize("decision", [YES, NO], ids=["yes", "no"])
@pytest.mark.parametrize("call_id", [LONG, "é"], ids=["long", "not ASCII"])
def test_a_call_with_an_id_that_the_engine_records_as_its_hash_is_decided_about_as_any_other(
    made: Any, kind: str, decision: Any, call_id: str
) -> None:
    shop = made(kind, call("refund", call_id, cents=1))
    asked = shop.start()
    assert waiting(asked) == [call_id]
    shop.approve_in_the_engine(asked, call_id)
    shop.resume_with(decision if kind == "agent" else {"decisions": [named(decision, call_id)]})
    assert shop.paid == ([1] if decision is YES else [])


@pytest.mark.parametrize("kind", ["node", "agent"])
def test_calls_of_one_message_with_one_id_are_refused_instead_of_asked_about(made: Any, kind: str) -> None:
    shop = made(kind, call("refund", "c1", cents=1), call("refund", "c1", cents=2))
    result = shop.start()
    assert waiting(result) == []
    assert all("have the same id" in message.content for message in tool_messages(result))
    assert shop.paid == []


def test_an_agent_that_is_resumed_before_anybody_was_asked_asks(made: Any) -> None:
    shop = made("agent", call("refund", "c1", cents=1))
    shop._graph.interrupt_before_nodes = ["tools"]
    shop.start()
    assert waiting(shop.resume_with(YES)) == ["c1"]
    assert shop.paid == []


FORM = "Resume with {'decisions': [...]}, with one for each call of this interrupt, in their order or each with its tool_call_id."


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"decisions": [named(YES, "c1")]},
            {"c2": "No decision names refund (c2); those that came name c1.", "c3": "names refund (c3); those that came name c1."},
        ),
        ({"decisions": [named(YES, "c1"), named(YES, "zz")]}, {"c2": "those that came name c1, zz.", "c3": "those that came name c1, zz."}),
        (
            {"decisions": [named(YES, "c1"), NO, NO]},
            {"c2": "those that came name c1. Beside them, those without a tool_call_id count for no call.", "c3": "Beside them"},
        ),
        (
            {"decisions": [named(YES, "c1"), named(NO, "c1"), named(YES, "c2")]},
            {"c1": "More than one decision names refund (c1), so none of them counts.", "c3": "those that came name c1, c1, c2."},
        ),
        ({"decisions": [YES, YES]}, dict.fromkeys(("c1", "c2", "c3"), "(needed: 3, came: 2), so none is about refund (c")),
        ({"decisions": []}, dict.fromkeys(("c1", "c2", "c3"), "(needed: 3, came: 0), so none is about refund (c")),
        (YES, dict.fromkeys(("c1", "c2", "c3"), "(needed: 3, came: 1), so none is about refund (c")),
        ([YES, YES, YES], dict.fromkeys(("c1", "c2", "c3"), "The decision about refund was [{'type': 'approve'}, {'type': 'approve'}")),
        (True, dict.fromkeys(("c1", "c2", "c3"), "The decision about refund was True, which cannot be used.")),
        ("approve", dict.fromkeys(("c1", "c2", "c3"), "The decision about refund was 'approve', which cannot be used.")),
        (named(YES, "c1"), {"c2": "those that came name c1.", "c3": "those that came name c1."}),
        ({"decisions": [YES, {"type": "hm"}, YES]}, {"c2": "The decision about refund was {'type': 'hm'}, which cannot be used."}),
        (
            {"decisions": [named({"type": "hm"}, "c1"), named(YES, "c2")]},
            {"c1": "which cannot be used.", "c3": "No decision names refund (c3); those that came name c1, c2."},
        ),
    ],
)
def test_each_call_that_is_asked_about_again_says_why_no_decision_counted_for_it(made: Any, given: Any, told: dict[str, str]) -> None:
    shop = made("node", *(call("refund", f"c{cents}", cents=cents) for cents in (1, 2, 3)))
    shop.start()
    again = shop.resume_with(given)
    descriptions = {one["tool_call_id"]: one["description"] for each in again["__interrupt__"] for one in each.value["action_requests"]}
    assert descriptions.keys() == told.keys()
    for call_id, description in descriptions.items():
        assert told[call_id] in description
        assert FORM in description
    shop.resume(*[NO] * len(told))  # in the form that the descriptions name
    assert shop.paid == [cents for cents in (1, 2, 3) if f"c{cents}" not in told]


def test_a_node_that_is_resumed_before_anybody_was_asked_says_so(made: Any) -> None:
    shop = made("node", call("refund", "c1", cents=1))
    shop._graph.interrupt_before_nodes = ["tools"]
    shop.start()
    (asked,) = shop.resume(YES)["__interrupt__"][0].value["action_requests"]
    assert "Nobody was asked about refund (c1) before, so no decision can be about it." in asked["description"]
    shop.resume(YES)
    assert shop.paid == [1]


EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "refund", "args": {"cents": 9}}}


@pytest.mark.parametrize("decision", [YES, NO, EDIT], ids=["approve", "reject", "edit"])
@pytest.mark.parametrize("by_interrupt", [False, True], ids=["bare", "by the interrupt's id"])
def test_one_decision_without_a_name_counts_for_none_of_several_calls(made: Any, decision: Any, by_interrupt: bool) -> None:
    shop = made("node", call("refund", "c1", cents=1), call("refund", "c2", cents=2))
    asked = shop.start()
    again = shop.resume_with({asked["__interrupt__"][0].id: decision} if by_interrupt else decision)
    assert waiting(again) == ["c1", "c2"]
    assert all("(needed: 2, came: 1)" in one["description"] for one in again["__interrupt__"][0].value["action_requests"])
    assert shop.paid == []
    shop.resume(YES, YES)
    assert shop.paid == [1, 2]


@pytest.mark.parametrize("otherwise", ["approved in the engine", "the rule is silent"])
def test_one_decision_without_a_name_lets_none_of_several_calls_run_that_the_engine_would(made: Any, otherwise: str) -> None:
    shop = made("node", call("refund", "c1", cents=1), call("refund", "c2", cents=2))
    asked = shop.start()
    if otherwise == "the rule is silent":
        shop.asks = False
    else:
        shop.approve_in_the_engine(asked, "c1")
    assert waiting(shop.resume_with(YES)) == ["c1", "c2"]
    assert shop.paid == []


@pytest.mark.parametrize(("decision", "paid"), [(YES, [1]), (NO, []), (EDIT, [9])], ids=["approve", "reject", "edit"])
@pytest.mark.parametrize("left", [False, True], ids=["the only call", "the only call that is left"])
def test_one_decision_without_a_name_counts_for_the_one_call_asked_about(made: Any, decision: Any, paid: list[int], left: bool) -> None:
    shop = made("node", call("refund", "c1", cents=1), *([call("refund", "c2", cents=2)] if left else []))
    shop.start()
    if left:
        shop.resume(named(NO, "c2"))
    assert waiting(shop.resume_with(decision)) == []
    assert shop.paid == paid


@pytest.mark.parametrize("kind", ["send", "agent"])
def test_one_decision_for_several_interrupts_is_refused_and_counts_for_none(made: Any, kind: str) -> None:
    shop = made(kind, call("refund", "c1", cents=1), call("refund", "c2", cents=2))
    asked = shop.start()["__interrupt__"]
    assert len(asked) == 2
    with pytest.raises(RuntimeError, match="interrupt id"):
        shop.resume_with(YES)
    assert shop.paid == []
    shop.resume_with({one.id: YES for one in asked})
    assert sorted(shop.paid) == [1, 2]


@pytest.mark.parametrize("kind", ["node", "agent"])
@pytest.mark.parametrize("listed", [[NO], {"type": "reject"}, []], ids=["list", "dict", "empty"])
def test_a_decision_beside_a_list_of_decisions_is_not_a_yes(made: Any, kind: str, listed: Any) -> None:
    shop = made(kind, call("refund", "c1", cents=1))
    shop.start()
    shop.resume_with({**YES, "decisions": listed})
    assert shop.paid == []
