"""Calls of a message that a limit has cut, in each framework: they do not run, however complete their arguments look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from agent_framework import Agent as FrameworkAgent
from agent_framework import ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream
from agent_framework import tool as framework_tool
from agents import Agent as OpenAIAgent
from agents import Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool

from callgate import Engine, Scope
from callgate.integrations import import_tools
from callgate.integrations.agent_framework import callgate_middleware
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from callgate.integrations.openai_agents import callgate_tools
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.agent_framework_agents import ScriptedClient, told_by
from tests.integrations.contract import Told
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages
from tests.integrations.test_openai_agents_contract import QUIET, told_in
from tests.integrations.test_pydantic_ai_contract import told_in as told_in_pydantic_ai

REFUSED = "The message ended before this call was complete."
LAST_IS_CUT = pytest.mark.parametrize(
    ("reason", "runs"), [("length", ["A"]), ("content_filter", []), ("tool_calls", ["A", "B"])], ids=["length", "filtered", "complete"]
)


def ledger() -> tuple[list[str], Callable[[str], str]]:
    """Return a list, and a tool's code that adds each order to it."""
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return f"{order} paid"

    return paid, pay


def check(told: Mapping[str, Told], paid: Sequence[str], runs: Sequence[str]) -> None:
    """Check that the calls of the orders in `runs`, and no others, have run and been answered so."""
    assert list(paid) == list(runs)
    for call_id, order in (("c1", "A"), ("c2", "B")):
        assert (REFUSED in told[call_id].text) == (order not in runs)


def refused_in(engine: Engine) -> int:
    """Return how many calls the journal has that were refused because they were cut."""
    return sum(event.kind == "call.completed" and b'"truncated"' in event.body for event in engine.journal.read())


class StreamingChat(ScriptedChat):
    """Streams the text of a call's arguments in pieces, and at the end why the message ended."""

    text: str
    ends: list[dict[str, str]]

    def _stream(self, messages: list[BaseMessage], *given: Any, **options: Any) -> Iterator[ChatGenerationChunk]:
        if any(isinstance(one, AIMessage) for one in messages):
            yield ChatGenerationChunk(message=AIMessageChunk(content="done"))
            return
        for at in range(0, len(self.text), 7):
            piece = tool_call_chunk(name=None if at else "pay", args=self.text[at : at + 7], id=None if at else "c1", index=0)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
        for end in self.ends:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", response_metadata=end))


def langchain_agent(engine: Engine, tools: Sequence[Any], model: ScriptedChat) -> Any:
    return create_agent(model, tools, middleware=[CallgateMiddleware(engine)])


def langgraph_agent(engine: Engine, tools: Sequence[Any], model: ScriptedChat) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", CallgateToolNode(tools, engine))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
    builder.add_edge("tools", "model")
    return builder.compile()


def sending_agent(engine: Engine, tools: Sequence[Any], model: ScriptedChat) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", CallgateToolNode(tools, engine))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: [Send("tools", [one]) for one in state["messages"][-1].tool_calls], ["tools"])
    builder.add_edge("tools", "model")
    return builder.compile()


GRAPHS = pytest.mark.parametrize("graph", [langchain_agent, langgraph_agent, sending_agent])
BROKEN_OFF = ("anthropic", "bedrock_converse", "deepseek", "fireworks", "google_genai", "groq", "mistralai", "openai", "openrouter", "xai")
"""The providers whose packages name themselves in the chunks of a stream, and the reason of its end in the last chunk."""
ENDS: dict[str, list[dict[str, str]]] = {
    "openai": [{"finish_reason": "length"}],
    "openai responses": [{"status": "incomplete"}],
    "anthropic": [{"stop_reason": "max_tokens"}],
    "google": [{"finish_reason": "MAX_TOKENS"}],
    "bedrock": [{"stopReason": "max_tokens"}],
    "ollama": [{"done_reason": "length"}],
    **{f"{name} broken off": [{"model_provider": name}] for name in BROKEN_OFF},
    "sent twice": [{"finish_reason": "length"}] * 2,
}


@GRAPHS
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_langchain_a_streamed_call_whose_arguments_were_completed_does_not_run(graph: Any, ends: list[dict[str, str]]) -> None:
    """LangChain makes the amount 12 of a text that ends in the middle of the amount 1200."""
    paid: list[int] = []

    @langchain_tool
    def pay(order: str, cents: int) -> str:
        """Pay an order."""
        paid.append(cents)
        return "paid"

    engine = Engine(import_tools([pay]))
    agent = graph(engine, [pay], StreamingChat(steps=[], text='{"order": "A", "cents": 12', ends=ends))
    states = list(agent.stream({"messages": [HumanMessage("go")]}, stream_mode=["messages", "values"]))
    engine.close_sync()
    assert refused_in(engine) == 1
    (told,) = tool_messages(states[-1][1])
    assert not paid
    assert (told.status, REFUSED in str(told.content)) == ("error", True)


@GRAPHS
@LAST_IS_CUT
async def test_langchain_calls_before_the_last_one_run_if_a_limit_cut_the_message(graph: Any, reason: str, runs: list[str]) -> None:
    paid, pay = ledger()
    message = says(call("pay", "c1", order="A"), call("pay", "c2", order="B"))
    message.response_metadata = {"model_provider": "openai", "finish_reason": reason}
    tools = [langchain_tool(pay)]
    async with Engine(import_tools(tools)) as engine:
        ended = await graph(engine, tools, ScriptedChat(steps=[message, says(text="done")])).ainvoke({"messages": [HumanMessage("go")]})
    check({one.tool_call_id: Told(str(one.content), one.status == "error") for one in tool_messages(ended)}, paid, runs)


@LAST_IS_CUT
async def test_pydantic_ai_calls_before_the_last_one_run_if_a_limit_cut_the_message(reason: str, runs: list[str]) -> None:
    """A provider that completes the arguments itself leaves no trace of the cut in them."""
    paid, pay = ledger()

    def answer(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(history) > 1:
            return ModelResponse(parts=[TextPart("done")])
        parts = [ToolCallPart("pay", {"order": order}, tool_call_id=call_id) for call_id, order in (("c1", "A"), ("c2", "B"))]
        finish: Any = {"tool_calls": "tool_call"}.get(reason, reason)
        return ModelResponse(parts=parts, finish_reason=finish)

    tools = [Tool(pay)]
    async with Engine(import_tools(tools)) as engine:
        result = await PydanticAgent(FunctionModel(answer), toolsets=[CallgateToolset(tools, engine)]).run("go")
    check(told_in_pydantic_ai(result.all_messages()), paid, runs)


class CutClient(ScriptedClient):
    """Pays two orders in a message that ends for the given reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self._reason: Any = reason

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        contents = [Content.from_text("done")]
        if len(self.seen) == 1:
            contents = [Content.from_function_call(one, "pay", arguments={"order": order}) for one, order in (("c1", "A"), ("c2", "B"))]
        if stream:
            return ResponseStream(self._updates(contents), finalizer=ChatResponse.from_updates)
        return self._whole(contents)

    async def _whole(self, contents: list[Content]) -> ChatResponse[Any]:
        return ChatResponse(messages=[Message("assistant", contents)], finish_reason=self._reason)

    async def _updates(self, contents: list[Content]) -> AsyncIterator[ChatResponseUpdate]:
        for content in contents:
            yield ChatResponseUpdate(role="assistant", contents=[content])
        yield ChatResponseUpdate(role="assistant", contents=[], finish_reason=self._reason)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@LAST_IS_CUT
async def test_agent_framework_calls_before_the_last_one_run_if_a_limit_cut_the_message(reason: str, runs: list[str], stream: bool) -> None:
    paid, pay = ledger()
    tools = [framework_tool(pay)]
    async with Engine(import_tools(tools)) as engine:
        agent: FrameworkAgent[Any] = FrameworkAgent(client=CutClient(reason), tools=tools, middleware=callgate_middleware(engine))
        if stream:
            await agent.run("go", stream=True).get_final_response()
        else:
            await agent.run("go")
    check(told_by(agent), paid, runs)


async def test_openai_agents_a_call_that_the_response_marks_as_incomplete_does_not_run() -> None:
    paid, pay = ledger()
    first, second = function_call("pay", {"order": "A"}, call_id="c1"), function_call("pay", {"order": "B"}, call_id="c2")
    second.status = "incomplete"  # type: ignore[union-attr]
    async with Engine() as engine:
        tools = callgate_tools([function_tool(pay)], engine, scope=Scope())
        model = ScriptedModel([[first, second], [assistant_message("done")]])
        result = await Runner.run(OpenAIAgent(name="shop", model=model, tools=tools), "go", run_config=QUIET)
    check(told_in(result), paid, ["A"])
