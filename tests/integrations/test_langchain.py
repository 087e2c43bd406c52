"""What LangChain and LangGraph give to tools and take from them, with their calls on the engine's route."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain.tools import InjectedState, InjectedStore, InjectedToolCallId, ToolRuntime
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, RetryPolicy, interrupt

from callgate import Ask, Engine, RawCall, Scope, UsageError
from callgate.calls import Effect
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from tests.integrations.contract import WrittenPolicy
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages
from tests.waiting import PATIENCE_S

_GO: Any = {"messages": [HumanMessage("go")]}
_THREAD: Any = {"configurable": {"thread_id": "thread"}}


def _agent(engine: Engine, tools: list[Any], *messages: Any, **options: Any) -> Any:
    model = ScriptedChat(steps=[*messages, says(text="done")])
    return create_agent(model, tools, middleware=[*options.pop("outer", ()), CallgateMiddleware(engine)], **options)


async def _again(agent: Any) -> Any:
    """Run the step with the tools again, as a graph does that resumes from the checkpoint before it."""
    before = [one async for one in agent.aget_state_history(_THREAD) if "tools" in one.next]
    return await agent.ainvoke(None, before[0].config)


async def test_state_store_runtime_and_call_id_are_injected_into_a_tool() -> None:
    seen: dict[str, Any] = {}

    @tool
    async def look(
        item: str,
        state: Annotated[dict[str, Any], InjectedState],
        store: Annotated[Any, InjectedStore],
        runtime: ToolRuntime,
        tool_call_id: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Look at an item."""
        seen.update(messages=len(state["messages"]), store=store, thread=runtime.config["configurable"]["thread_id"], id=tool_call_id)
        return item

    store = InMemoryStore()
    async with Engine(import_tools([look], {"look": "none"})) as engine:
        schema = engine.tools.openai()[0]["function"]["parameters"]
        agent = _agent(engine, [look], says(call("look", item="pear")), checkpointer=InMemorySaver(), store=store)
        result = await agent.ainvoke(_GO, _THREAD)
    assert tool_messages(result)[0].content == "pear"
    assert seen == {"messages": 2, "store": store, "thread": "thread", "id": "c1"}
    assert list(schema["properties"]) == ["item"]


class _Counted(AgentState[Any]):
    count: int


async def test_a_tool_may_return_a_command_and_a_repeated_call_gives_the_same_command() -> None:
    ran: list[str] = []

    @tool
    async def count(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Count."""
        ran.append(tool_call_id)
        return Command(update={"count": 3, "messages": [ToolMessage("counted", tool_call_id=tool_call_id)]})

    async with Engine(import_tools([count])) as engine:
        agent = _agent(engine, [count], says(call("count")), state_schema=_Counted, checkpointer=InMemorySaver())
        first = await agent.ainvoke(_GO, _THREAD)
        second = await _again(agent)
    assert [first["count"], second["count"]] == [3, 3]
    assert [tool_messages(one)[0].content for one in (first, second)] == ["counted", "counted"]
    assert ran == ["c1"]


async def test_images_and_artifacts_reach_the_agent_and_are_restored_from_the_record() -> None:
    blocks = [{"type": "text", "text": "a chart"}, {"type": "image", "base64": "iVBORw0KGgoA" * 7_000, "mime_type": "image/png"}]

    @tool(response_format="content_and_artifact")
    async def draw() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Draw a chart."""
        return blocks, {"rows": [1, 2]}

    async with Engine(import_tools([draw])) as engine:
        agent = _agent(engine, [draw], says(call("draw")), checkpointer=InMemorySaver())
        both = [await agent.ainvoke(_GO, _THREAD), await _again(agent)]
    for result in both:
        (message,) = tool_messages(result)
        assert message.content == blocks
        assert message.artifact == {"rows": [1, 2]}


async def test_a_long_text_is_shortened_and_its_artifact_stays() -> None:
    @tool(response_format="content_and_artifact")
    async def read() -> tuple[str, list[int]]:
        """Read a file."""
        return "word " * 20_000, [1]

    async with Engine(import_tools([read], {"read": "none"})) as engine:
        result = await _agent(engine, [read], says(call("read"))).ainvoke(_GO)
    (message,) = tool_messages(result)
    assert len(message.content) < 20_000
    assert "100000 bytes in all" in message.content
    assert message.artifact == [1]


async def test_an_error_message_of_a_tool_stays_as_it_is() -> None:
    @tool
    async def look(tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Look."""
        return ToolMessage("nothing there", tool_call_id=tool_call_id, status="error", artifact=[1])

    async with Engine(import_tools([look])) as engine:
        result = await _agent(engine, [look], says(call("look"))).ainvoke(_GO)
    (message,) = tool_messages(result)
    assert (message.content, message.status, message.artifact) == ("nothing there", "error", [1])


async def test_wrong_arguments_are_an_error_that_names_the_argument_and_nothing_runs() -> None:
    ran: list[int] = []

    @tool
    async def refund(amount: int) -> str:
        """Refund."""
        ran.append(amount)
        return "done"

    async with Engine(import_tools([refund])) as engine:
        result = await _agent(engine, [refund], says(call("refund", amount="many"))).ainvoke(_GO)
    (message,) = tool_messages(result)
    assert message.status == "error"
    assert "amount" in message.content
    assert not ran


async def test_a_tool_that_interrupts_its_graph_runs_again_when_the_graph_is_resumed() -> None:
    answers: list[str] = []

    @tool
    async def ask(question: str) -> str:
        """Ask the user."""
        answers.append(interrupt(question))
        return f"the user said {answers[-1]}"

    async with Engine(import_tools([ask])) as engine:
        agent = _agent(engine, [ask], says(call("ask", question="Why?")), checkpointer=InMemorySaver())
        first = await agent.ainvoke(_GO, _THREAD)
        second = await agent.ainvoke(Command(resume="because"), _THREAD)
        third = await _again(agent)
    assert first["__interrupt__"][0].value == "Why?"
    assert tool_messages(second)[0].content == "the user said because"
    assert tool_messages(third)[0].content == "the user said because"
    assert answers == ["because"]


async def test_a_node_that_is_retried_does_not_repeat_an_effect() -> None:
    ran: list[str] = []
    attempts: list[int] = []

    @tool
    async def refund(order: str) -> str:
        """Refund."""
        ran.append(order)
        return "refunded"

    async with Engine(import_tools([refund])) as engine:
        node = CallgateToolNode([refund], engine)

        async def tools_then_fail(state: MessagesState) -> Any:
            output = await node.ainvoke(state)
            attempts.append(1)
            if len(attempts) < 3:
                raise ConnectionError("the database is away")
            return output

        builder = StateGraph(MessagesState)
        builder.add_node("tools", tools_then_fail, retry_policy=RetryPolicy(initial_interval=0.01, jitter=False))
        builder.add_edge(START, "tools")
        builder.add_edge("tools", END)
        graph = builder.compile()
        result = await graph.ainvoke({"messages": [says(call("refund", order="A7"))]})
    assert len(attempts) == 3
    assert ran == ["A7"]
    assert tool_messages(result)[0].content == "refunded"


def test_a_sync_agent_makes_its_calls_along_the_route_and_asks_a_human() -> None:
    ran: list[str] = []

    @tool
    def refund(order: str, runtime: ToolRuntime) -> str:
        """Refund."""
        ran.append(f"{order} {runtime.tool_call_id}")
        return f"{order} refunded"

    engine = Engine(import_tools([refund]), policies=[WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})])
    try:
        agent = _agent(engine, [refund], says(call("refund", order="A7"), call("refund", "c2", order="A8")), checkpointer=InMemorySaver())
        result = agent.invoke(_GO, _THREAD)
        answers = {one.id: {"type": "approve"} for one in result["__interrupt__"] if one.value["args"]["order"] == "A7"}
        answers |= {one.id: {"type": "reject", "message": "no"} for one in result["__interrupt__"] if one.id not in answers}
        result = agent.invoke(Command(resume=answers), _THREAD)
    finally:
        engine.close_sync()
    assert ran == ["A7 c1"]
    assert [one.status for one in tool_messages(result)] == ["success", "error"]


def test_a_sync_tool_node_asks_about_its_calls_and_runs_them() -> None:
    @tool
    def refund(order: str) -> str:
        """Refund."""
        return f"{order} refunded"

    engine = Engine(import_tools([refund]), policies=[WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})])
    try:
        builder = StateGraph(MessagesState)
        builder.add_node("tools", CallgateToolNode([refund], engine))
        builder.add_edge(START, "tools")
        graph = builder.compile(checkpointer=InMemorySaver())
        graph.invoke({"messages": [says(call("refund", order="A7"))]}, _THREAD)
        result = graph.invoke(Command(resume={"decisions": [{"type": "approve", "tool_call_id": "c1"}]}), _THREAD)
    finally:
        engine.close_sync()
    assert tool_messages(result)[0].content == "A7 refunded"


def test_a_sync_tool_that_hangs_ends_at_its_deadline_in_a_sync_agent() -> None:
    go_on = threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        go_on.wait(PATIENCE_S)
        return "late"

    engine = Engine(import_tools([hang], {"hang": "none"}, options={"hang": {"timeout_s": 0.1}}))
    try:
        result = _agent(engine, [hang], says(call("hang"))).invoke(_GO)
    finally:
        go_on.set()
        engine.close_sync()
    assert "did not end within 0.1 s" in tool_messages(result)[0].content


async def test_an_edit_with_wrong_arguments_is_asked_again_with_the_reason() -> None:
    @tool
    async def refund(amount: int) -> str:
        """Refund."""
        return f"refunded {amount}"

    def edited(amount: Any) -> Command[Any]:
        return Command(resume={"type": "edit", "edited_action": {"name": "refund", "args": {"amount": amount}}})

    policies = [WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})]
    async with Engine(import_tools([refund]), policies=policies) as engine:
        agent = _agent(engine, [refund], says(call("refund", amount=7)), checkpointer=InMemorySaver())
        await agent.ainvoke(_GO, _THREAD)
        asked_again = await agent.ainvoke(edited("many"), _THREAD)
        result = await agent.ainvoke(edited(5), _THREAD)
    assert "The question stays open" in asked_again["__interrupt__"][0].value["description"]
    assert "refunded 5" in tool_messages(result)[0].content


async def test_a_name_that_is_almost_a_tools_runs_it_and_another_name_is_an_error_that_lists_the_tools() -> None:
    seen: list[str] = []

    @tool
    async def look_up(item: str, runtime: ToolRuntime) -> str:
        """Look an item up."""
        seen.append(runtime.tool_call_id or "")
        return item

    @tool
    async def refund(order: str) -> str:
        """Refund: a tool of the engine that the agent does not have."""
        raise AssertionError

    async with Engine(import_tools([look_up, refund])) as engine:
        calls = says(call("functions.look-up", item="pear"), call("refund", "c2", order="A7"), call("fly", "c3"))
        result = await _agent(engine, [look_up], calls).ainvoke(_GO)
    known, hidden, unknown = tool_messages(result)
    assert (known.content, seen) == ("pear", ["c1"])
    assert (hidden.status, unknown.status) == ("error", "error")
    assert "look_up" in hidden.content
    assert "look_up" in unknown.content


async def test_the_scope_of_the_host_reaches_the_calls() -> None:
    seen: list[Scope] = []

    @tool
    async def look(item: str) -> str:
        """Look."""
        return item

    class Keeps(WrittenPolicy):
        async def decide(self, call: Any) -> Any:
            seen.append(call.scope)
            return await super().decide(call)

    async with Engine(import_tools([look]), policies=[Keeps({})]) as engine:
        model = ScriptedChat(steps=[says(call("look", item="pear")), says(text="done")])
        by_user = CallgateMiddleware(engine, scope=lambda request: Scope(principal=request.runtime.config["configurable"]["user"]))
        agent = create_agent(model, [look], middleware=[by_user], checkpointer=InMemorySaver())
        await agent.ainvoke(_GO, {"configurable": {"thread_id": "thread", "user": "ann"}})
    assert [(one.principal, one.run, one.conversation) for one in seen] == [("ann", "thread", "thread")]


async def test_other_middleware_wraps_the_call_as_a_whole() -> None:
    class Marks(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            message = await handler(request)
            return message.model_copy(update={"content": f"<{message.content}>"})

    @tool
    async def look(item: str) -> str:
        """Look."""
        return item

    async with Engine(import_tools([look])) as engine:
        result = await _agent(engine, [look], says(call("look", item="pear")), outer=[Marks()]).ainvoke(_GO)
    assert tool_messages(result)[0].content == "<pear>"


async def test_a_closed_engine_is_a_usage_error() -> None:
    @tool
    async def look(item: str) -> str:
        """Look."""
        return item

    engine = Engine(import_tools([look]))
    await engine.close()
    with pytest.raises(UsageError, match="closed"):
        await _agent(engine, [look], says(call("look", item="pear"))).ainvoke(_GO)


def test_something_else_as_the_engine_is_a_usage_error_that_shows_how() -> None:
    with pytest.raises(UsageError, match=r"Engine\(import_tools\(tools"):
        CallgateMiddleware([])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Engine\(import_tools\(tools"):
        CallgateToolNode([], None)  # type: ignore[arg-type]


async def test_an_imported_tool_runs_without_its_framework_too() -> None:

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    (imported,) = import_tools([add])
    assert (imported.name, imported.description) == ("add", "Add two numbers.")
    assert imported.parameters == add.tool_call_schema.model_json_schema()  # type: ignore[union-attr]
    async with Engine([imported]) as engine:
        outcome = await engine.call(RawCall(name="add", arguments={"a": 1, "b": 2}))
    assert outcome.message()["content"] == "3"


async def test_two_messages_with_the_same_call_id_are_two_calls() -> None:
    ran: list[str] = []

    @tool
    async def refund(order: str) -> str:
        """Refund."""
        ran.append(order)
        return f"number {len(ran)}"

    async with Engine(import_tools([refund])) as engine:
        message = says(call("refund", order="A7"))
        result = await _agent(engine, [refund], message, message, checkpointer=InMemorySaver()).ainvoke(_GO, _THREAD)
    assert [one.content for one in tool_messages(result)] == ["number 1", "number 2"]


async def test_an_agent_within_a_tool_makes_its_calls_in_the_same_engine() -> None:
    @tool
    async def refund(order: str) -> str:
        """Refund."""
        return f"{order} refunded"

    async with Engine(import_tools([refund])) as engine:
        inner = _agent(engine, [refund], says(call("refund", order="A7")))

        @tool
        async def delegate(task: str) -> str:
            """Give a task to another agent."""
            result = await inner.ainvoke({"messages": [HumanMessage(task)]})
            return str(tool_messages(result)[0].content)

        outer = _agent(engine, [delegate], says(call("delegate", task="Refund A7.")), checkpointer=InMemorySaver())
        result = await asyncio.wait_for(outer.ainvoke(_GO, _THREAD), PATIENCE_S)
    assert tool_messages(result)[0].content == "A7 refunded"


def test_an_agent_within_a_tool_makes_its_calls_in_the_same_engine_from_threads_too() -> None:
    @tool
    def refund(order: str) -> str:
        """Refund."""
        return f"{order} refunded"

    engine = Engine(import_tools([refund]))
    inner = _agent(engine, [refund], says(call("refund", order="A7")))

    @tool
    def delegate(task: str) -> str:
        """Give a task to another agent."""
        return str(tool_messages(inner.invoke({"messages": [HumanMessage(task)]}))[0].content)

    try:
        result = _agent(engine, [delegate], says(call("delegate", task="Refund A7."))).invoke(_GO)
    finally:
        engine.close_sync()
    assert tool_messages(result)[0].content == "A7 refunded"


@pytest.mark.parametrize("use_async", [False, True], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize(("effect", "starts"), [("once", 1), ("none", 3)])
def test_middleware_behind_the_engines_cannot_start_a_tool_again_whose_effect_is_once(effect: Effect, starts: int, use_async: bool) -> None:
    started: list[str] = []

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        started.append(order)
        raise ConnectionError("no answer")

    engine = Engine(import_tools([pay], options={"pay": {"effect": effect, "retryable": False}}))
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    model = ScriptedChat(steps=[says(call("pay", order="A7")), says(text="done")])
    agent = create_agent(model, [pay], middleware=[CallgateMiddleware(engine), retry])
    ended = asyncio.run(agent.ainvoke(_GO)) if use_async else agent.invoke(_GO)
    engine.close_sync()
    (told,) = tool_messages(ended)
    assert started == ["A7"] * starts
    assert told.status == "error"
    assert ('"status":"unknown"' in str(told.content)) == (effect == "once")
