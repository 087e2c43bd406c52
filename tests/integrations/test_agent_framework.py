"""`callgate_middleware` with agents of Microsoft Agent Framework, beyond what every wrapper promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
)
from agent_framework import tool as framework_tool

from callgate import Ask, Engine, RawCall, Scope, UsageError
from callgate.integrations import import_tools
from callgate.integrations.agent_framework import callgate_middleware
from tests.integrations.agent_framework_agents import ScriptedClient, agent_of, told_by
from tests.integrations.contract import Call, WrittenPolicy

_PNG = b"\x89PNG" * 8_000
"""Longer than the text of a result that a model is shown."""


@framework_tool
async def refund(order: str, context: FunctionInvocationContext) -> str:
    """Refund an order."""
    return f"{order} refunded for {context.kwargs['user']}"


@framework_tool
async def look(item: str = "pear") -> str:
    """Look at an item."""
    return f"a {item}"


def asking() -> Engine:
    return Engine(import_tools([refund, look]), policies=[WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})])


FOR_ANN: dict[str, Any] = {"function_invocation_kwargs": {"user": "ann"}}


async def test_the_context_of_the_invocation_reaches_the_tool_and_the_scope() -> None:
    async with Engine(import_tools([refund])) as engine:
        client = ScriptedClient([Call("refund", {"order": "A7"})], "done")
        middleware = callgate_middleware(engine, scope=lambda context: Scope(run="r", principal=context.kwargs["user"]))
        agent: Agent[Any] = Agent(client=client, tools=[refund], middleware=middleware)
        await agent.run("go", **FOR_ANN)
        (received,) = [event for event in engine.journal.read(run="r") if event.kind == "call.received"]
    assert told_by(agent)["c1"].text == "A7 refunded for ann"
    assert b'"principal":"ann"' in received.body


async def test_images_reach_the_model_as_they_are_and_again_when_the_call_is_made_again() -> None:
    @framework_tool(approval_mode="always_require")
    async def draw() -> list[Content]:
        """Draw something."""
        return [Content.from_text("a dot"), Content.from_data(_PNG, "image/png")]

    async with Engine(import_tools([draw])) as engine:
        agent, session = agent_of(engine, [draw], [Call("draw")], "done", "done"), AgentSession(session_id="session")
        (request,) = (await agent.run("go", session=session)).user_input_requests
        saved = json.dumps(session.to_dict())
        shown = []
        for _ in range(2):
            answer = Message("user", [request.to_function_approval_response(approved=True)])
            await agent.run(answer, session=AgentSession.from_dict(json.loads(saved)))
            assert isinstance(agent.client, ScriptedClient)
            (result,) = [one for message in agent.client.seen[-1] for one in message.contents if one.type == "function_result"]
            shown.append([(one.type, one.text, one.uri) for one in result.items or ()])
        started = [event.kind for event in engine.journal.read()].count("call.started")
    assert shown[0] == shown[1]
    assert [kind for kind, *_ in shown[0]] == ["text", "data"]
    assert len(str(shown[0][1][2])) > len(_PNG)
    assert started == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_arguments_that_are_not_json_are_an_error_for_the_model_and_nothing_runs(stream: bool) -> None:
    """The framework alone would run a tool whose arguments all have defaults."""
    async with Engine(import_tools([look])) as engine:
        agent = agent_of(engine, [look], [Call("look", '{"item": "plu')], "done")  # type: ignore[arg-type]
        if stream:
            async for _ in agent.run("go", stream=True):
                pass
        else:
            await agent.run("go")
        kinds = [event.kind for event in engine.journal.read()]
    assert told_by(agent)["c1"].is_error
    assert "cut off" in told_by(agent)["c1"].text
    assert kinds == ["call.received", "call.completed"]


async def test_a_call_that_waits_for_a_human_ends_the_run_with_the_question_and_its_siblings_have_run() -> None:
    async with asking() as engine:
        calls = [Call("refund", {"order": "A7"}), Call("refund", {"order": "B8"}, "c2"), Call("look", {}, "c3")]
        agent, session = agent_of(engine, [refund, look], calls, "done"), AgentSession(session_id="session")
        yes, no = (await agent.run("go", session=session, **FOR_ANN)).user_input_requests
        assert yes.additional_properties["question"] == "Refund it?"
        answers = [yes.to_function_approval_response(approved=True), no.to_function_approval_response(approved=False)]
        answers[1].additional_properties["reason"] = "too old"
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        await agent.run(Message("user", answers), session=session, **FOR_ANN)
        answered = [event.body for event in engine.journal.read() if event.kind == "approval.answered"]
    told = told_by(agent)
    assert (told["c1"].text, told["c3"].text) == ("A7 refunded for ann", "a pear")
    assert "a human said no: too old" in told["c2"].text
    assert [b'"allowed"' in body for body in answered] == [True, False]


async def test_a_denied_call_does_not_run_even_if_no_policy_asks_about_it_any_more() -> None:
    async with asking() as engine:
        agent, session = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done"), AgentSession(session_id="session")
        (request,) = (await agent.run("go", session=session, **FOR_ANN)).user_input_requests
        denial = request.to_function_approval_response(approved=False)
    async with Engine(import_tools([refund])) as lenient:
        agent = agent_of(lenient, [refund], "done")
        await agent.run(Message("user", [denial]), session=session, **FOR_ANN)
    assert told_by(agent)["c1"].is_error
    assert "a human has denied it. Nothing happened" in told_by(agent)["c1"].text


def payment() -> tuple[Any, list[str]]:
    """Return a tool that pays orders, and the orders that it has paid."""
    paid: list[str] = []

    @framework_tool
    async def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return f"{order} paid"

    return pay, paid


async def test_a_no_withdraws_a_yes_that_the_journal_has_and_the_model_reads_the_no() -> None:
    async with asking() as engine:
        agent, session = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done"), AgentSession(session_id="session")
        (request,) = (await agent.run("go", session=session, **FOR_ANN)).user_input_requests
        await engine.approve(request.additional_properties["approval_id"], by="bob")
        denial = request.to_function_approval_response(approved=False)
        denial.additional_properties["reason"] = "too dear"
        await agent.run(Message("user", [denial]), session=session, **FOR_ANN)
        answered = [event.body for event in engine.journal.read() if event.kind == "approval.answered"]
    assert "a human said no: too dear" in told_by(agent)["c1"].text
    assert [b'"allowed"' in body for body in answered] == [True, False]


@pytest.mark.parametrize("answers", [(True, False), (False, True)], ids=["yes, then no", "no, then yes"])
async def test_of_several_answers_to_a_request_in_one_message_the_latest_counts(answers: tuple[bool, bool]) -> None:
    pay, paid = payment()
    async with Engine(import_tools([pay], options={"pay": {"requires_approval": True}})) as engine:
        agent, session = agent_of(engine, [pay], [Call("pay", {"order": "A7"})], "done"), AgentSession(session_id="session")
        (request,) = (await agent.run("go", session=session)).user_input_requests
        said = [request.to_function_approval_response(approved=one) for one in answers]
        assert (await agent.run(Message("user", said), session=session)).text == "done"
    assert paid == (["A7"] if answers[-1] else [])
    assert ("a human said no" in told_by(agent)["c1"].text) is not answers[-1]


async def test_a_second_users_yes_to_a_call_that_was_made_for_the_first_asks_that_user() -> None:
    pay, paid = payment()
    async with Engine(import_tools([pay], options={"pay": {"requires_approval": True}})) as engine:
        anns, session = agent_of(engine, [pay], [Call("pay", {"order": "A7"})], scope=Scope(principal="ann")), AgentSession(session_id="s")
        (request,) = (await anns.run("go", session=session)).user_input_requests
        saved = json.dumps(session.to_dict())
        asked = []
        for user in ("ann", "eve"):
            agent = agent_of(engine, [pay], "done", scope=Scope(principal=user))
            yes = Message("user", [request.to_function_approval_response(approved=True)])
            result = await agent.run(yes, session=AgentSession.from_dict(json.loads(saved)))
            asked.append([one.additional_properties["question"] for one in result.user_input_requests])
    assert paid == ["A7"]
    assert asked[0] == []
    assert "or another user. Run pay" in asked[1][0]


async def test_other_middleware_of_the_agent_keeps_working_on_both_sides() -> None:
    class Marks(FunctionMiddleware):
        def __init__(self, mark: str) -> None:
            self.mark = mark

        async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
            await call_next()
            text = context.result if isinstance(context.result, str) else context.result[0].text
            context.result = f"{self.mark}({text})"

    async with Engine(import_tools([look])) as engine:
        middleware = [Marks("outer"), *callgate_middleware(engine), Marks("inner")]
        agent: Agent[Any] = Agent(client=ScriptedClient([Call("look")], "done"), tools=[look], middleware=middleware)
        await agent.run("go")
        (completed,) = [event for event in engine.journal.read() if event.kind == "call.completed"]
    assert told_by(agent)["c1"].text == "outer(inner(a pear))"
    assert b'"inner(a pear)"' in completed.body


async def test_effects_of_tools_that_the_engine_does_not_have_are_given_in_one_mapping() -> None:
    async with Engine() as engine:
        client = ScriptedClient([Call("look")], "done")
        agent: Agent[Any] = Agent(client=client, tools=[look], middleware=callgate_middleware(engine, effects={"look": "none"}))
        await agent.run("go")
        assert [(bound.name, bound.effect) for bound in engine.tools] == [("look", "none")]
        with pytest.raises(UsageError, match="as its engine"):
            callgate_middleware("engine")  # type: ignore[arg-type]


async def test_an_imported_tool_works_without_the_framework_and_its_schema_is_unchanged() -> None:
    async with Engine(import_tools([look], {"look": "none"})) as engine:
        outcome = await engine.call(RawCall(name="look", arguments={"item": "plum"}))
        (bound,) = engine.tools
    assert outcome.message()["content"] == "a plum"
    assert bound.schema.source == look.parameters()


async def test_the_model_is_told_that_a_human_has_changed_the_arguments() -> None:
    async with asking() as engine:
        agent, session = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done"), AgentSession(session_id="session")
        (request,) = (await agent.run("go", session=session, **FOR_ANN)).user_input_requests
        await engine.approve(request.additional_properties["approval_id"], by="bob", arguments={"order": "B8"})
        await agent.run(Message("user", [request.to_function_approval_response(approved=True)]), session=session, **FOR_ANN)
    assert told_by(agent)["c1"].text.startswith("B8 refunded for ann")
    assert "bob approved it with" in told_by(agent)["c1"].text


@pytest.mark.parametrize(
    ("end", "status"),
    [(MiddlewareFailure("the balance is wrong"), "unknown"), (MiddlewareTermination("enough"), "ok")],
    ids=["failure", "end"],
)
async def test_middleware_that_ends_the_run_after_the_tool_has_run_ends_it_and_the_call_does_not_run_again(
    end: Exception, status: str
) -> None:
    ran: list[str] = []

    @framework_tool
    async def pay(order: str) -> str:
        """Pay an order."""
        ran.append(order)
        return "paid"

    class Guard(FunctionMiddleware):
        async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
            await call_next()
            raise end

    async with Engine(import_tools([pay])) as engine:
        seen = []
        for _ in range(2):
            client = ScriptedClient([Call("pay", {"order": "A7"})], "done")
            agent: Agent[Any] = Agent(
                client=client, tools=[pay], middleware=[*callgate_middleware(engine, scope=Scope(run="r", message_id="m")), Guard()]
            )
            with contextlib.suppress(MiddlewareFailure):
                await agent.run("go")
            seen.append(len(client.seen))
        completed = [json.loads(event.body)["status"] for event in engine.journal.read() if event.kind == "call.completed"]
    assert ran == ["A7"]
    assert completed[0] == status
    assert seen[0] == 1


async def test_middleware_that_ends_the_run_before_the_tool_has_started_leaves_a_call_that_can_be_made_again() -> None:
    ran: list[str] = []
    closed = [True]

    @framework_tool
    async def pay(order: str) -> str:
        """Pay an order."""
        ran.append(order)
        return "paid"

    class Gate(FunctionMiddleware):
        async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
            if closed:
                closed.clear()
                raise MiddlewareTermination("not yet")
            await call_next()

    async with Engine(import_tools([pay])) as engine:
        for _ in range(2):
            client = ScriptedClient([Call("pay", {"order": "A7"})], "done")
            agent: Agent[Any] = Agent(
                client=client, tools=[pay], middleware=[*callgate_middleware(engine, scope=Scope(run="r", message_id="m")), Gate()]
            )
            await agent.run("go")
    assert ran == ["A7"]
    assert told_by(agent)["c1"].text == "paid"


@pytest.mark.parametrize("stream", [False, True])
async def test_options_for_a_tool_that_neither_the_agent_nor_the_engine_has_end_the_run_before_the_model_is_asked(stream: bool) -> None:
    async with Engine() as engine:
        client = ScriptedClient("done")
        middleware = callgate_middleware(engine, options={"refnd": {"key": "refund:{order}"}})
        agent: Agent[Any] = Agent(client=client, tools=[refund, look], middleware=middleware)
        run = agent.run("go", stream=True, **FOR_ANN).get_final_response() if stream else agent.run("go", **FOR_ANN)
        with pytest.raises(UsageError, match=r"has an entry for 'refnd', which is none of the tools\. Did you mean 'refund'\?"):
            await run
    assert client.seen == []
