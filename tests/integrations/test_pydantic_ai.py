"""What Pydantic AI gives to tools and takes from them, with their calls on the engine's route."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
    ToolReturn,
)
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolReturnPart, UserPromptPart
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset

from callgate import Ask, Engine, MemoryJournal, RawCall, Scope, SqliteJournal, UsageError, inbox
from callgate.integrations import ExternalTool, import_tools
from callgate.integrations.external_tool import in_own_thread
from callgate.integrations.pydantic_ai import CallgateCapability, CallgateToolset
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_pydantic_ai_contract import scripted, told_in
from tests.waiting import PATIENCE_S


def _contents(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


class Item(BaseModel):
    name: str


@dataclass
class Shop:
    prices: dict[str, int]


async def test_dependencies_reach_a_tool_and_values_have_the_types_of_its_annotations() -> None:
    seen: list[Any] = []

    async def price(ctx: RunContext[Shop], item: Item, on: date) -> int:
        """Look up a price."""
        seen.append((item, on, ctx.tool_call_id))
        return ctx.deps.prices[item.name]

    tools = [Tool(price)]
    async with Engine(import_tools(tools, {"price": "none"})) as engine:
        calls = [Call("price", {"item": {"name": "pear"}, "on": "2026-11-23"})]
        agent = Agent(scripted(calls, "done"), deps_type=Shop, toolsets=[CallgateToolset(tools, engine)])
        result = await agent.run("go", deps=Shop({"pear": 7}))
    assert told_in(result.all_messages())["c1"].text == "7"
    assert seen == [(Item(name="pear"), date(2026, 11, 23), "c1")]


async def test_arguments_that_a_human_edits_have_the_types_of_the_annotations_too() -> None:
    seen: list[Any] = []

    async def book(on: date) -> str:
        """Book a day."""
        seen.append(on)
        return "booked"

    tools = [Tool(book)]
    policies = [WrittenPolicy({"book": Ask(question="Book it?", rule="ask")})]
    async with Engine(import_tools(tools), policies=policies) as engine:
        model = scripted([Call("book", {"on": "2026-11-23"})], "done")
        agent = Agent(model, toolsets=[CallgateToolset(tools, engine)], output_type=[str, DeferredToolRequests])
        first = await agent.run("go")
        assert isinstance(first.output, DeferredToolRequests)
        approval_id = first.output.metadata["c1"]["approval_id"]
        await engine.approve(approval_id, by="ann", arguments={"on": "2026-12-01"})
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"c1": True}))
    assert seen == [date(2026, 12, 1)]
    assert "ann approved it" in told_in(second.all_messages())["c1"].text


async def test_images_and_content_beside_a_result_reach_the_model_and_are_restored_from_the_record() -> None:
    picture = BinaryContent(data=b"\x89PNG" * 10_000, media_type="image/png")

    async def draw() -> BinaryContent:
        """Draw."""
        return picture

    async def report() -> ToolReturn[str]:
        """Report."""
        return ToolReturn("see below", content=["the chart:", picture], metadata={"rows": 3})

    tools = [Tool(draw), Tool(report)]
    async with Engine(import_tools(tools)) as engine:
        agent = Agent(scripted([Call("draw"), Call("report", id="c2")], "done"), toolsets=[CallgateToolset(tools, engine)])
        first = await agent.run("go")
        second = await agent.run(message_history=first.all_messages()[:2])
    for result in (first, second):
        drawn, reported = _contents(result.all_messages())
        assert isinstance(drawn, BinaryContent)
        assert drawn.data == picture.data
        assert reported == "see below"
        (beside,) = [
            part for one in result.all_messages() for part in one.parts if isinstance(part, UserPromptPart) and part.content != "go"
        ]
        assert isinstance(beside.content[1], BinaryContent)


@pytest.mark.parametrize("metadata", [object(), {"receipt": object()}], ids=["an object", "an object in a dict"])
async def test_metadata_of_a_result_reach_the_application_also_if_they_cannot_be_recorded(metadata: Any) -> None:
    paid: list[int] = []

    async def pay() -> ToolReturn[str]:
        """Pay."""
        paid.append(1)
        return ToolReturn("receipt 17", metadata=metadata)

    async with Engine(import_tools([Tool(pay)])) as engine:
        agent = Agent(scripted([Call("pay")], "done"), toolsets=[CallgateToolset([Tool(pay)], engine)])
        first = await agent.run("go")
        again = await agent.run(message_history=first.all_messages()[:2])
    for result, expected in ((first, metadata), (again, None)):
        (told,) = [part for one in result.all_messages() for part in one.parts if isinstance(part, ToolReturnPart)]
        assert (told.outcome, told.metadata) == ("success", expected)
        assert str(told.content).startswith("receipt 17")
    assert paid == [1]


async def test_a_model_retry_of_a_tool_is_a_retry_and_leaves_no_unknown_outcome() -> None:
    tries: list[int] = []

    async def book(day: int) -> str:
        """Book a day."""
        tries.append(day)
        if day > 28:
            raise ModelRetry("the day must be at most 28")
        return "booked"

    tools = [Tool(book)]
    journal = MemoryJournal()
    async with Engine(import_tools(tools), journal=journal) as engine:
        model = scripted([Call("book", {"day": 31})], [Call("book", {"day": 28}, "c2")], "done")
        agent = Agent(model, toolsets=[CallgateToolset(tools, engine)])
        result = await agent.run("go")
        uids = [event.call for event in journal.read() if event.kind == "call.completed"]
        assert len(uids) == 2
    told = told_in(result.all_messages())
    assert "the day must be at most 28" in told["c1"].text
    assert told["c2"].text == "booked"
    assert tries == [31, 28]


async def test_failed_calls_do_not_use_up_the_retries_of_a_tool_and_retries_of_a_tool_do() -> None:
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("no")

    async def again() -> str:
        """Ask for a retry."""
        raise ModelRetry("once more")

    tools = [Tool(fail, max_retries=1), Tool(again, max_retries=1)]
    async with Engine(import_tools(tools, {"fail": "none"})) as engine:
        wrapped = CallgateToolset(tools, engine)
        failing = Agent(scripted(*([Call("fail", id=f"c{number}")] for number in range(4)), "done"), toolsets=[wrapped])
        assert (await failing.run("go")).output == "done"
        asking = Agent(scripted(*([Call("again", id=f"c{number}")] for number in range(4)), "done"), toolsets=[wrapped])
        with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries"):
            await asking.run("go")


async def test_a_tool_that_asks_for_approval_itself_runs_when_it_is_approved() -> None:
    ran: list[str] = []

    async def remove(ctx: RunContext[None], path: str) -> str:
        """Remove a file."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "it is gone then"})
        ran.append(path)
        return f"{path} removed"

    tools = [Tool(remove)]
    async with Engine(import_tools(tools)) as engine:
        model = scripted([Call("remove", {"path": "a.txt"})], "done")
        agent = Agent(model, toolsets=[CallgateToolset(tools, engine)], output_type=[str, DeferredToolRequests])
        first = await agent.run("go")
        assert isinstance(first.output, DeferredToolRequests)
        assert first.output.metadata["c1"] == {"why": "it is gone then"}
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"c1": True}))
        third = await agent.run(message_history=first.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"c1": True}))
    for result in (second, third):
        assert told_in(result.all_messages())["c1"].text == "a.txt removed"
    assert ran == ["a.txt"]


async def test_a_question_is_approved_by_another_process_that_has_only_the_messages_and_the_journal(tmp_path: Any) -> None:
    ran: list[str] = []

    async def refund(order: str) -> str:
        """Refund an order."""
        ran.append(order)
        return f"{order} refunded"

    def agent(engine: Engine) -> Agent[None, Any]:
        model = scripted([Call("refund", {"order": "A7"})], "done")
        return Agent(model, toolsets=[CallgateToolset([Tool(refund)], engine)], output_type=[str, DeferredToolRequests])

    policies = [WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})]
    async with Engine(import_tools([Tool(refund)]), policies=policies, journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        first = await agent(engine).run("go")
    async with Engine(import_tools([Tool(refund)]), policies=policies, journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        approvals = DeferredToolResults(approvals={"c1": True})
        second = await agent(engine).run(message_history=first.all_messages(), deferred_tool_results=approvals)
    assert told_in(second.all_messages())["c1"].text == "A7 refunded"
    assert ran == ["A7"]


async def test_the_tools_of_a_toolset_that_lists_them_late_have_the_given_effects() -> None:
    async def look(item: str) -> str:
        """Look."""
        return item

    late: AbstractToolset[Any] = WrapperToolset(FunctionToolset([look]))
    async with Engine() as engine:
        agent = Agent(
            scripted([Call("look", {"item": "pear"})], "done"), toolsets=[CallgateToolset(late, engine, effects={"look": "none"})]
        )
        await agent.run("go")
        registered = engine.tools.get("look")
    assert registered is not None
    assert registered.effect == "none"
    with pytest.raises(UsageError, match=r"CallgateToolset\(toolset, engine, effects="):
        import_tools([late])
    async with Engine() as engine:
        agent = Agent(scripted("done"), toolsets=[CallgateToolset(late, engine, effects={"lok": "none"})])
        with pytest.raises(UsageError, match="Did you mean 'look'"):
            await agent.run("go")


async def test_the_scope_of_the_host_reaches_the_calls() -> None:
    seen: list[Scope] = []

    class Keeps(WrittenPolicy):
        async def decide(self, call: Any) -> Any:
            seen.append(call.scope)
            return await super().decide(call)

    async def look(item: str) -> str:
        """Look."""
        return item

    async with Engine(import_tools([Tool(look)]), policies=[Keeps({})]) as engine:
        toolset = CallgateToolset([look], engine, scope=lambda ctx: Scope(principal=ctx.deps))
        agent = Agent(scripted([Call("look", {"item": "pear"})], "done"), toolsets=[toolset], deps_type=str)
        await agent.run("go", deps="ann", conversation_id="talk")
    assert [(one.principal, one.run, one.conversation) for one in seen] == [("ann", "talk", "talk")]


async def test_a_closed_engine_and_something_else_as_the_engine_are_usage_errors() -> None:
    async def look(item: str) -> str:
        """Look."""
        return item

    engine = Engine(import_tools([Tool(look)]))
    await engine.close()
    agent = Agent(scripted([Call("look", {"item": "pear"})], "done"), toolsets=[CallgateToolset([look], engine)])
    with pytest.raises(UsageError, match="closed"):
        await agent.run("go")
    with pytest.raises(UsageError, match=r"Engine\(import_tools\(tools"):
        CallgateToolset([look], [])  # type: ignore[arg-type]


async def test_imported_tools_keep_their_schema_and_run_without_an_agent_if_they_need_no_run_context() -> None:
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        Args:
            a: The first number.
        """
        return a + b

    async def ask(ctx: RunContext[str]) -> str:
        """Use the dependencies."""
        return ctx.deps

    toolset = FunctionToolset([add, ask])
    tools = import_tools([toolset], {"add": "none"})
    for one in tools:
        definition = toolset.tools[one.name].tool_def
        assert (one.name, one.description, one.parameters) == (definition.name, definition.description, definition.parameters_json_schema)
    async with Engine(tools) as engine:
        added = await engine.call(RawCall(name="add", arguments={"a": 1}))
        asked = await engine.call(RawCall(name="ask", arguments={}))
    assert added.message()["content"] == "3"
    assert "call it through CallgateToolset" in asked.message()["content"]


async def test_a_capability_takes_the_calls_of_all_tools_of_an_agent_along_the_route() -> None:
    go_on = threading.Event()
    journal = MemoryJournal()
    async with Engine(journal=journal) as engine:
        model = scripted([Call("look", {"item": "pear"}), Call("hang", id="c2")], "done")
        agent = Agent(model, deps_type=str, capabilities=[CallgateCapability(engine, effects={"look": "none"})])

        @agent.tool
        async def look(ctx: RunContext[str], item: str) -> str:
            """Look."""
            return f"{ctx.deps}: {item}"

        @agent.tool_plain
        def hang() -> str:
            """Hang."""
            go_on.wait(PATIENCE_S)
            return "late"

        parameters = {"additionalProperties": False, "properties": {}, "type": "object"}
        engine.register(ExternalTool(in_own_thread(lambda context, arguments: None), name="hang", parameters=parameters, timeout_s=0.1))
        try:
            result = await agent.run("go", deps="ann")
            assert engine.abandoned > 0
        finally:
            go_on.set()
        registered = engine.tools.get("look")
    told = told_in(result.all_messages())
    assert told["c1"].text == "ann: pear"
    assert "Its code could not be stopped and went on" in told["c2"].text
    assert registered is not None
    assert registered.effect == "none"
    assert [event.kind for event in journal.read()].count("call.completed") == 2


async def test_a_denial_that_the_engine_got_reaches_the_model_with_its_reason() -> None:
    ran: list[str] = []

    async def refund(order: str) -> str:
        """Refund an order."""
        ran.append(order)
        return "done"

    journal = MemoryJournal()
    policies = [WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})]
    async with Engine(import_tools([Tool(refund)]), policies=policies, journal=journal) as engine:
        model = scripted([Call("refund", {"order": "A7"})], "done")
        agent = Agent(model, toolsets=[CallgateToolset([refund], engine)], output_type=[str, DeferredToolRequests])
        first = await agent.run("go")
        assert isinstance(first.output, DeferredToolRequests)
        await engine.deny(first.output.metadata["c1"]["approval_id"], by="ann", reason="it is too old")
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"c1": True}))
    told = told_in(second.all_messages())["c1"]
    assert told.is_error
    assert "ann said no: it is too old" in told.text
    assert not ran
    assert "approval.answered" in [event.kind for event in journal.read()]


async def test_a_call_that_the_framework_denied_is_answered_with_the_denial(tmp_path: Path) -> None:
    """Pydantic AI tells the model itself, and never makes the call again. Another process goes on with the run."""

    def pay(order: str) -> str:
        """Pay an order."""
        return order

    path = tmp_path / "calls.db"
    model = scripted([Call("pay", {"order": "A7"}, id="c1"), Call("pay", {"order": "B8"}, id="c2")], "done")
    policies = [WrittenPolicy({"pay": Ask(question="Pay it?", rule="ask")})]
    async with Engine(policies=policies, journal=SqliteJournal(path)) as engine:
        agent = Agent(model, tools=[pay], capabilities=[CallgateCapability(engine)], output_type=[str, DeferredToolRequests])
        first = await agent.run("go")
    denied = DeferredToolResults(approvals={"c1": ToolDenied("too dear"), "c2": True})
    async with Engine(policies=policies, journal=SqliteJournal(path)) as engine:
        agent = Agent(model, tools=[pay], capabilities=[CallgateCapability(engine)], output_type=[str, DeferredToolRequests])
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=denied)
        answers = [json.loads(event.body) for event in engine.journal.read() if event.kind == "approval.answered"]
    assert _contents(second.all_messages()) == ["too dear", "B8"]
    assert [(one["status"], one["details"].get("reason", "")) for one in answers] == [("allowed", ""), ("refused", "too dear")]
    assert inbox.waiting(path) == []


async def test_two_messages_with_the_same_call_id_are_two_calls() -> None:
    ran: list[str] = []

    async def refund(order: str) -> str:
        """Refund an order."""
        ran.append(order)
        return f"number {len(ran)}"

    tools = [Tool(refund)]
    async with Engine(import_tools(tools)) as engine:
        message = [Call("refund", {"order": "A7"})]
        agent = Agent(scripted(message, message, "done"), toolsets=[CallgateToolset(tools, engine)])
        result = await agent.run("go")
    assert _contents(result.all_messages()) == ["number 1", "number 2"]


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_call_that_is_approved_with_other_arguments_twice_runs_once(same_process: bool, tmp_path: Path) -> None:
    ran: list[int] = []

    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return f"{cents} paid"

    def engine_on_disk() -> Engine:
        policy = WrittenPolicy({"pay": Ask(question="Pay?", rule="ask")})
        return Engine(import_tools([pay]), policies=[policy], journal=SqliteJournal(tmp_path / "calls.db"))

    def agent_with(engine: Engine) -> Agent[None, Any]:
        model = scripted([Call("pay", {"cents": 500})], "done")
        return Agent(model, toolsets=[CallgateToolset([pay], engine)], output_type=[str, DeferredToolRequests])

    async def resume(engine: Engine) -> str:
        approved = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"cents": 100})})
        history = ModelMessagesTypeAdapter.validate_json(saved)
        return told_in((await agent_with(engine).run(message_history=history, deferred_tool_results=approved)).all_messages())["c1"].text

    async with engine_on_disk() as engine:
        saved = ModelMessagesTypeAdapter.dump_json((await agent_with(engine).run("go")).all_messages())
        told = [await resume(engine), await resume(engine)] if same_process else []
    while len(told) < 2:
        async with engine_on_disk() as engine:
            told.append(await resume(engine))
    assert ran == [100]
    assert [text.partition("\n")[0] for text in told] == ["100 paid", "100 paid"]
    assert "a human approved it with" in told[0]


@pytest.mark.parametrize(
    ("other", "match"), [("effect", "already has the tool with the effect `none`"), ("schema", "already has another tool")]
)
async def test_a_second_agents_tool_that_takes_the_name_of_another_is_refused(other: str, match: str) -> None:
    async def process(order: str) -> str:
        """Show an order."""
        return f"{order} is shipped"

    async def pay(order: str, cents: int = 0) -> str:
        """Pay an order."""
        return "paid"

    async with Engine() as engine:
        step = [Call("process", {"order": "A7"})]
        first = Agent(scripted(step, "done"), tools=[process], capabilities=[CallgateCapability(engine, effects={"process": "none"})])
        for _ in range(2):
            await first.run("go")
        effect: Any = "once" if other == "effect" else "none"
        tools = [process if other == "effect" else Tool(pay, name="process")]
        second = Agent(scripted(step, "done"), tools=tools, capabilities=[CallgateCapability(engine, effects={"process": effect})])
        with pytest.raises(UsageError, match=match):
            await second.run("go")


async def test_a_tool_whose_schema_is_prepared_for_each_step_is_one_tool() -> None:
    async def look(item: str) -> str:
        """Look at an item."""
        return f"a {item}"

    async def prepared(ctx: RunContext[str], definition: ToolDefinition) -> ToolDefinition:
        item = {"type": "string", "enum": ["pear", ctx.deps]}
        return replace(definition, parameters_json_schema={**definition.parameters_json_schema, "properties": {"item": item}})

    async with Engine() as engine:
        for user in ("ann", "bob"):
            tools = [Tool(look, prepare=prepared)]
            agent = Agent(scripted([Call("look", {"item": user})], "done"), deps_type=str, toolsets=[CallgateToolset(tools, engine)])
            assert told_in((await agent.run("go", deps=user)).all_messages())["c1"].text == f"a {user}"


async def test_the_calls_of_a_message_have_their_effects_in_its_order_whoever_judges_them(tmp_path: Path) -> None:
    """A plain function judges in a thread, so the call after it would be ready first."""
    ledger = tmp_path / "ledger.txt"

    async def pay(cents: int) -> str:
        """Pay."""
        await asyncio.sleep(0.01)
        ledger.write_text("paid\n")
        return "paid"

    def mail(text: str) -> str:
        """Send a mail."""
        with ledger.open("a") as lines:
            lines.write(f"{text}\n")
        return "sent"

    tools = import_tools([pay, mail], options={"pay": {"requires_approval": lambda arguments: arguments["cents"] > 100}})
    async with Engine(tools) as engine:
        message = [Call("pay", {"cents": 5}, id="c1"), Call("mail", {"text": "I have paid."}, id="c2")]
        agent = Agent(scripted(message, "done"), toolsets=[CallgateToolset([pay, mail], engine)])
        assert (await agent.run("go")).output == "done"
    assert ledger.read_text() == "paid\nI have paid.\n"
