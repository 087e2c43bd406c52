"""`callgate_tools` with agents of the OpenAI Agents SDK, beyond what every wrapper promises."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from agents import (
    Agent,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    ToolOutputFileContent,
    ToolOutputImage,
    WebSearchTool,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from callgate import Ask, Engine, RawCall, Scope, SqliteJournal, UsageError, tool
from callgate.integrations import import_tools
from callgate.integrations.openai_agents import callgate_tools
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_openai_agents_contract import QUIET, agent_of, told_in

_PNG = "data:image/png;base64," + "iVBORw0KGgoA" * 4_000
"""Longer than the text of a result that a model is shown."""


@function_tool
async def refund(context: RunContextWrapper[dict[str, str]], order: str) -> str:
    """Refund an order."""
    return f"{order} refunded for {context.context['user']}"


def asking() -> Engine:
    return Engine(import_tools([refund]), policies=[WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})])


def kinds(engine: Engine) -> list[str]:
    return [event.kind for event in engine.journal.read()]


async def test_the_run_context_reaches_the_tool() -> None:
    async with Engine(import_tools([refund])) as engine:
        agent = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done")
        result = await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET)
    assert told_in(result)["c1"].text == "A7 refunded for ann"


async def test_the_sdk_has_nothing_to_compile_before_a_call_of_a_wrapped_tool() -> None:
    """The SDK reads the annotations of what invokes a tool before each call, and would compile those that are texts."""
    compiled = []

    def note(frame: object, event: str, called: object) -> None:
        if event == "c_call" and called in (compile, eval):
            compiled.append(called)

    async with Engine(import_tools([refund])) as engine:
        first, second = (agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done") for _ in range(2))
        await Runner.run(first, "go", context={"user": "ann"}, run_config=QUIET)  # what is imported late is compiled now
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            await Runner.run(second, "go", context={"user": "ann"}, run_config=QUIET)
        finally:
            sys.setprofile(before)
    assert not compiled


async def test_the_scope_can_depend_on_the_run_context() -> None:
    async with Engine(import_tools([refund])) as engine:
        agent = agent_of(engine, [], [Call("refund", {"order": "A7"})], "done")
        agent.tools = callgate_tools([refund], engine, scope=lambda context: Scope(run="r", principal=context.context["user"]))
        await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET)
        (received,) = [event for event in engine.journal.read(run="r") if event.kind == "call.received"]
    assert b'"principal":"ann"' in received.body


async def test_images_and_files_reach_the_model_as_they_are_and_again_when_the_call_is_made_again() -> None:
    @function_tool(needs_approval=True)
    async def draw() -> list[Any]:
        """Draw something."""
        return [ToolOutputImage(image_url=_PNG), ToolOutputFileContent(file_data="data:text/csv;base64,YSxi", filename="a.csv")]

    async with Engine(import_tools([draw])) as engine:
        agent = agent_of(engine, [draw], [Call("draw")], "done", "done", run="case-7")
        saved = (await Runner.run(agent, "go", run_config=QUIET)).to_state().to_json()
        shown = []
        for _ in range(2):
            state = await RunState.from_json(agent, saved)
            state.approve(state.get_interruptions()[0])
            items: list[Any] = list((await Runner.run(agent, state, run_config=QUIET)).to_input_list())
            shown.append([item["output"] for item in items if item.get("type") == "function_call_output"])
        started = kinds(engine).count("call.started")
    assert shown[0] == shown[1]
    assert [part["type"] for part in shown[0][0]] == ["input_image", "input_file"]
    assert shown[0][0][0]["image_url"] == _PNG
    assert started == 1


@pytest.mark.parametrize("text", ['{"limit": 1', "[1]"])
async def test_arguments_that_are_no_object_are_an_error_for_the_model_and_nothing_runs(text: str) -> None:
    ran = []

    @function_tool
    async def list_orders(limit: int = 10) -> str:
        """List orders."""
        ran.append(limit)
        return "none"

    async with Engine(import_tools([list_orders])) as engine:
        agent = agent_of(engine, [list_orders], [Call("list_orders", text)], "done")  # type: ignore[arg-type]
        told = told_in(await Runner.run(agent, "go", run_config=QUIET))
    assert told["c1"].is_error
    assert "JSON" in told["c1"].text or "cut off" in told["c1"].text
    assert ran == []


async def test_tools_of_callgate_are_offered_and_hosted_tools_and_agents_stay_as_they_are() -> None:
    @tool(effect="none")
    def count(item: str) -> int:
        """Count an item."""
        return len(item)

    hosted = WebSearchTool()
    helper = Agent(name="helper", model=ScriptedModel([[assistant_message("helped")]])).as_tool("help", "Help.")
    async with Engine() as engine:
        agent = agent_of(engine, [count, hosted, helper], [Call("count", {"item": "pear"}), Call("help", {"input": "x"}, "c2")], "done")
        assert agent.tools[1:] == [hosted, helper]
        told = told_in(await Runner.run(agent, "go", run_config=QUIET))
        assert [bound.name for bound in engine.tools] == ["count"]
    assert (told["c1"].text, told["c2"].text) == ("4", "helped")


async def test_effects_of_tools_that_the_engine_does_not_have_are_given_in_one_mapping() -> None:
    async with Engine() as engine:
        callgate_tools([refund], engine, effects={"refund": "idempotent"})
        assert [(bound.name, bound.effect) for bound in engine.tools] == [("refund", "idempotent")]
        with pytest.raises(UsageError, match="Did you mean 'refund'"):
            callgate_tools([refund], engine, effects={"refnd": "none"})
        with pytest.raises(UsageError, match="as its engine"):
            callgate_tools([refund], "engine")  # type: ignore[arg-type]


async def test_a_call_that_waits_for_a_human_interrupts_a_streamed_run_and_its_siblings_run() -> None:
    @function_tool
    async def look(item: str) -> str:
        """Look at an item."""
        return f"a {item}"

    engine = asking()
    async with engine:
        calls = [Call("refund", {"order": "A7"}), Call("look", {"item": "pear"}, "c2")]
        agent = agent_of(engine, [refund, look], calls, "done")
        streamed = Runner.run_streamed(agent, "go", context={"user": "ann"}, run_config=QUIET)
        async for _ in streamed.stream_events():
            pass
        assert told_in(streamed)["c2"].text == "a pear"
        state = streamed.to_state()
        state.approve(state.get_interruptions()[0])
        told = told_in(await Runner.run(agent, state, run_config=QUIET))
    assert told["c1"].text == "A7 refunded for ann"


async def test_an_operator_of_callgate_can_answer_and_the_run_goes_on_with_that_answer() -> None:
    engine = asking()
    async with engine:
        agent = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done")
        state = (await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET)).to_state()
        (asked,) = [event.call for event in engine.journal.read() if event.kind == "call.suspended"]
        await engine.deny(asked, by="bob", reason="not today")
        state.approve(state.get_interruptions()[0])
        told = told_in(await Runner.run(agent, state, run_config=QUIET))
    assert "bob said no: not today" in told["c1"].text


@pytest.mark.parametrize("resumed_in", ["the same process", "another process"])
async def test_a_rejection_is_in_the_journal(resumed_in: str, tmp_path: Any) -> None:
    def engine_on_disk() -> Engine:
        policy = WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})
        return Engine(import_tools([refund]), policies=[policy], journal=SqliteJournal(tmp_path / "calls.db"))

    async def resumed(engine: Engine, saved: dict[str, Any]) -> list[bytes]:
        agent = agent_of(engine, [refund], "done", run="case-7")
        state = await RunState.from_json(agent, saved)
        state.reject(state.get_interruptions()[0], rejection_message="too old")
        assert told_in(await Runner.run(agent, state, run_config=QUIET))["c1"].text == "too old"
        return [event.body for event in engine.journal.read() if event.kind == "approval.answered"]

    async with engine_on_disk() as engine:
        agent = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], run="case-7")
        saved = (await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET)).to_state().to_json()
        found = await resumed(engine, saved) if resumed_in == "the same process" else []
    if not found:
        async with engine_on_disk() as engine:
            found = await resumed(engine, saved)
    assert len(found) == 1
    assert b'"refused"' in found[0]
    assert b"too old" in found[0]


async def test_a_session_keeps_the_calls_and_their_results() -> None:
    session = SQLiteSession("case-7")
    async with Engine(import_tools([refund])) as engine:
        agent = agent_of(engine, [refund], [Call("refund", {"order": "A7"})], "done", "again")
        await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET, session=session)
        result = await Runner.run(agent, "and now?", context={"user": "ann"}, run_config=QUIET, session=session)
    outputs: Sequence[Any] = [item for item in await session.get_items() if item.get("type") == "function_call_output"]
    session.close()
    assert result.final_output == "again"
    assert [item["output"] for item in outputs] == ["A7 refunded for ann"]


async def test_an_imported_tool_works_without_the_sdk_and_its_failures_are_failures() -> None:
    @function_tool
    def half(number: int) -> float:
        """Halve a number."""
        if number == 13:
            raise ValueError("13 has no half here")
        return number / 2

    async with Engine(import_tools([half], {"half": "none"})) as engine:
        good = await engine.call(RawCall(name="half", arguments={"number": 3}))
        bad = await engine.call(RawCall(name="half", arguments={"number": 13}))
        (bound,) = engine.tools
    assert good.message()["content"] == "1.5"
    assert '"code":"tool_raised"' in bad.message()["content"]
    assert "13 has no half here" in bad.message()["content"]
    assert bound.schema.source == half.params_json_schema


async def test_the_model_is_told_that_a_human_has_changed_the_arguments_beside_an_image_too() -> None:
    @function_tool
    async def draw(thing: str) -> ToolOutputImage:
        """Draw a thing."""
        return ToolOutputImage(image_url=f"data:image/png;base64,{thing}")

    policy = WrittenPolicy({"draw": Ask(question="Draw it?", rule="ask")})
    async with Engine(import_tools([draw]), policies=[policy]) as engine:
        agent = agent_of(engine, [draw], [Call("draw", {"thing": "cat"})], "done")
        state = (await Runner.run(agent, "go", run_config=QUIET)).to_state()
        (asked,) = [event.call for event in engine.journal.read() if event.kind == "call.suspended"]
        await engine.approve(asked, by="bob", arguments={"thing": "dog"})
        state.approve(state.get_interruptions()[0])
        items: list[Any] = list((await Runner.run(agent, state, run_config=QUIET)).to_input_list())
    (output,) = [item["output"] for item in items if item.get("type") == "function_call_output"]
    assert output[0]["image_url"] == "data:image/png;base64,dog"
    assert "bob approved it with" in output[1]["text"]


async def test_calls_that_wait_for_a_human_in_two_runs_are_two_calls_even_if_their_ids_repeat() -> None:
    told = []
    async with asking() as engine:
        agents = [agent_of(engine, [refund], [Call("refund", {"order": "A7"}, "functions.refund:0")], "done") for _ in range(2)]
        states = [(await Runner.run(agents[n], "go", context={"user": "ab"[n]}, run_config=QUIET)).to_state() for n in range(2)]
        for agent, state in zip(agents, states, strict=True):
            state.approve(state.get_interruptions()[0])
            told.append(told_in(await Runner.run(agent, state, run_config=QUIET))["functions.refund:0"].text)
    assert told == ["A7 refunded for a", "A7 refunded for b"]


async def test_another_run_that_repeats_a_call_id_is_told_that_its_effect_was_done_before() -> None:
    async with Engine() as engine:
        tools = callgate_tools([refund], engine, options={"refund": {"key": "refund:{order}"}})
        told = []
        for _ in range(2):
            agent = agent_of(engine, [], [Call("refund", {"order": "A7"}, "functions.refund:0")], "done")
            agent.tools = tools
            told.append(told_in(await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET))["functions.refund:0"].text)
    assert told[0] == "A7 refunded for ann"
    assert "Nothing was run for this call" in told[1]


@pytest.mark.parametrize("run", ["", "case-7"])
async def test_a_no_is_for_the_run_in_which_it_was_said_even_if_call_ids_repeat(run: str) -> None:
    async with asking() as engine:
        calls = [[Call("refund", {"order": order}, "functions.refund:0")] for order in ("A7", "B8")]
        agents = [agent_of(engine, [], call, "done") for call in calls]
        agents[0].tools = agents[1].tools = callgate_tools([refund], engine, scope=Scope(run=run))
        denied, allowed = [(await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET)).to_state() for agent in agents]
        denied.reject(denied.get_interruptions()[0], rejection_message="not hers")
        allowed.approve(allowed.get_interruptions()[0])
        results = [await Runner.run(agent, state, run_config=QUIET) for agent, state in zip(agents, (denied, allowed), strict=True)]
        answers = [event.body for event in engine.journal.read() if event.kind == "approval.answered"]
    assert [told_in(result)["functions.refund:0"].text for result in results] == ["not hers", "B8 refunded for ann"]
    assert [b"not hers" in answer for answer in answers] == [True, False]


async def test_a_run_without_a_name_that_is_resumed_twice_from_json_gets_the_stored_result(tmp_path: Any) -> None:
    ran = []

    @function_tool(needs_approval=True)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        return f"payment {len(ran)}"

    def engine_on_disk() -> Engine:
        return Engine(import_tools([pay]), journal=SqliteJournal(tmp_path / "calls.db"))

    async with engine_on_disk() as engine:
        saved = (await Runner.run(agent_of(engine, [pay], [Call("pay", {"to": "Bob"})]), "go", run_config=QUIET)).to_state().to_json()
    told = []
    for _ in range(2):
        async with engine_on_disk() as engine:
            agent = agent_of(engine, [pay], "done")
            state = await RunState.from_json(agent, saved)
            state.approve(state.get_interruptions()[0])
            told.append(told_in(await Runner.run(agent, state, run_config=QUIET))["c1"].text)
    assert told == ["payment 1", "payment 1"]


@pytest.mark.parametrize("asks", [False, True])
async def test_a_call_stays_that_of_its_user_whoever_resumes_the_run(asks: bool) -> None:
    """`to_json` leaves out a context that it cannot write, and another user may resume the run."""
    paid = []

    @function_tool(needs_approval=not asks)
    async def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    def whose(context: RunContextWrapper[Any]) -> Scope:
        user = context.context["user"]
        return Scope(principal=user, conversation=user)

    policies = [WrittenPolicy({"pay": Ask(question="Pay?", rule="ask")})] if asks else []
    async with Engine(import_tools([pay]), policies=policies) as engine:
        agent = agent_of(engine, [], "done", "done", "done")
        agent.tools = callgate_tools([pay], engine, scope=whose)
        first = agent.clone(model=ScriptedModel([[function_call("pay", '{"to":  "Bob"}', call_id="c1")]]))
        saved = (await Runner.run(first, "go", context={"user": "ann"}, run_config=QUIET)).to_state().to_json()
        for user in ("bob", "ann", "eve"):
            state = await RunState.from_json(agent, saved, context_override=RunContextWrapper({"user": user}))
            state.approve(state.get_interruptions()[0])
            assert told_in(await Runner.run(agent, state, run_config=QUIET))["c1"].text == "paid"
    assert paid == ["Bob"]


async def test_a_function_that_returns_no_scope_is_an_error_for_the_developer() -> None:
    async with Engine(import_tools([refund])) as engine:
        agent = agent_of(engine, [], [Call("refund", {"order": "A7"})], "done")
        agent.tools = callgate_tools([refund], engine, scope=lambda context: "ann")  # type: ignore[arg-type,return-value]
        with pytest.raises(UsageError, match="The scope of the wrapper is 'ann'"):
            await Runner.run(agent, "go", context={"user": "ann"}, run_config=QUIET)


async def test_calls_of_two_runs_are_two_calls_even_if_their_ids_repeat() -> None:
    """Some models count their call ids from 0 in each run."""

    @function_tool
    async def account(context: RunContextWrapper[str]) -> str:
        """Show the account."""
        return f"account of {context.context}"

    async with Engine() as engine:
        for user in ("ann", "bob"):
            agent = agent_of(engine, [], [Call("account", {}, "functions.account:0")], "done")
            agent.tools = callgate_tools([account], engine)
            result = await Runner.run(agent, "go", context=user, run_config=QUIET)
            assert told_in(result)["functions.account:0"].text == f"account of {user}"


async def test_a_second_tool_of_a_name_is_refused_if_it_differs_from_the_first() -> None:
    """Its calls would take the effect and the schema of the other one."""

    @function_tool(name_override="work")
    async def read(query: str) -> str:
        """Read."""
        return query

    @function_tool(name_override="work")
    async def pay(order: str) -> str:
        """Pay."""
        return order

    async with Engine() as engine:
        callgate_tools([read], engine, effects={"work": "none"})
        with pytest.raises(UsageError, match="already has another tool 'work'"):
            callgate_tools([pay], engine)
        with pytest.raises(UsageError, match="effects says that 'work' is `once`"):
            callgate_tools([read], engine, effects={"work": "once"})
