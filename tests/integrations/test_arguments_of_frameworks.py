"""A framework's tool gets the arguments that rules, keys and humans see: validated before all of them, with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import pytest
from agent_framework import tool as agent_framework_tool
from agents import function_tool
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import Tool as PydanticTool

from callgate import Engine, RawCall, Rules
from callgate.calls import Suspended
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.engine_calls import bodies, result_of
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages

RULES = Rules.parse('default="allow"\n[[rule]]\nid="big"\nverdict="ask"\ntool="pay"\nwhen={"arguments.cents"={above=5000}}')
FRAMEWORKS: dict[str, Callable[[Any], Any]] = {
    "langchain": langchain_tool,
    "openai_agents": lambda function: function_tool(function, strict_mode=False),
    "pydantic_ai": PydanticTool,
    "agent_framework": agent_framework_tool,
}


class Limits(BaseModel):
    cents: int = 100


NO_LIMITS = Limits()


class Shop:
    """Tools of a framework, and with what they were run."""

    def __init__(self, framework: str) -> None:
        self.made: list[Any] = []

        def pay(order: str, cents: int = 70_000) -> str:
            """Pay."""
            self.made.append((order, cents))
            return "paid"

        def refund(total: Decimal, day: date = date(2026, 1, 31)) -> str:
            """Refund."""
            self.made.append((total, day))
            return "refunded"

        self.tools = [FRAMEWORKS[framework](pay), FRAMEWORKS[framework](refund)]


@pytest.fixture(params=FRAMEWORKS)
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


async def test_rules_and_keys_see_the_default_of_an_omitted_argument(shop: Shop) -> None:
    async with Engine(import_tools(shop.tools, options={"pay": {"key": "pay:{order}:{cents}"}}), policies=[RULES]) as engine:
        asked = await engine.call(RawCall(name="pay", arguments={"order": "A"}))
        assert isinstance(asked, Suspended), asked
        assert '"cents":70000' in asked.arguments
        assert "arguments.cents is 70000" in asked.question
        await engine.approve(asked.approval_id, by="ann")
        assert result_of(await engine.call(RawCall(name="pay", arguments={"order": "A"}))).success
        assert result_of(await engine.call(RawCall(name="pay", arguments={"order": "A", "cents": 70_000}))).metadata.replayed
    assert shop.made == [("A", 70_000)]


async def test_equal_values_make_one_key_however_they_are_written(shop: Shop) -> None:
    options: Any = {"refund": {"key": "refund:{total}:{day}"}}
    async with Engine(import_tools(shop.tools, options=options)) as engine:
        for total in ("10.50", 10.5, "10.5", "10.500", "1.05e1"):
            assert result_of(await engine.call(RawCall(name="refund", arguments={"total": total}))).success
    assert shop.made == [(Decimal("10.5"), date(2026, 1, 31))]


async def test_what_the_framework_refuses_is_refused_before_a_question_and_a_key(shop: Shop) -> None:
    def approval(arguments: Any) -> bool:
        shop.made.append("asked")
        return False

    options: Any = {"refund": {"key": "refund:{day}", "requires_approval": approval}}
    async with Engine(import_tools(shop.tools, options=options)) as engine:
        refused = result_of(await engine.call(RawCall(name="refund", arguments={"total": "ten"})))
        assert (refused.code, shop.made) == ("schema_invalid", [])
        assert 'total: expected a valid decimal, got "ten"' in (refused.error or "")
        assert result_of(await engine.call(RawCall(name="refund", arguments={"total": "10"}))).success
    assert shop.made == ["asked", (Decimal(10), date(2026, 1, 31))]


async def run(tool: BaseTool, **arguments: Any) -> tuple[Any, Any]:
    """Return the result of a call, and the arguments that a rule of the tool has seen."""
    seen: list[Any] = []

    def approval(arguments: Any) -> bool:
        seen.append(dict(arguments))
        return False

    options: Any = {tool.name: {"requires_approval": approval}}
    async with Engine(import_tools([tool], options=options)) as engine:
        result = result_of(await engine.call(RawCall(name=tool.name, arguments=arguments)))
    return result, seen[0] if seen else None


async def test_a_validator_that_would_change_its_own_result_runs_once() -> None:
    class Euros(BaseModel):
        cents: int
        note: str = "none"

        @field_validator("cents", mode="before")
        @classmethod
        def of_euros(cls, given: Any) -> Any:
            return given * 100

    tool = StructuredTool.from_function(lambda cents, note: f"{cents} {note}", name="pay", description="Pay.", args_schema=Euros)
    result, seen = await run(tool, cents=7)
    assert (result.text, seen) == ("700 none", {"cents": 7, "note": "none"})


async def test_a_validator_of_the_model_is_asked_before_the_tool_runs() -> None:
    class Transfer(BaseModel):
        iban: str
        caller: Annotated[str, InjectedToolArg]

        @field_validator("iban")
        @classmethod
        def german(cls, given: str) -> str:
            if not given.strip().startswith("DE"):
                raise ValueError("only German accounts")
            return given.strip()

    tool = StructuredTool.from_function(
        lambda iban, caller="nobody": iban, name="pay", description="Pay.", args_schema=Transfer, handle_validation_error=True
    )
    refused, seen = await run(tool, iban="FR1")
    assert (refused.code, seen) == ("schema_invalid", None)
    assert 'iban: only German accounts; got "FR1"' in refused.error
    _, seen = await run(tool, iban=" DE1 ", caller="root")
    assert seen == {"iban": "DE1"}


async def test_a_value_without_a_readable_json_form_stays_as_the_model_wrote_it() -> None:
    class Login(BaseModel):
        password: SecretStr
        number: int = Field(default_factory=lambda: 5)

    tool = StructuredTool.from_function(
        lambda password, number: f"{password.get_secret_value()} {number}", name="pay", description="Pay.", args_schema=Login
    )
    result, seen = await run(tool, password="abc")
    assert (result.text, seen) == ("abc 5", {"password": "abc"})


async def test_the_id_of_the_call_is_injected_and_no_argument() -> None:
    @langchain_tool
    def pay(order: str, call_id: Annotated[str, InjectedToolCallId], cents: int = 5) -> str:
        """Pay."""
        return f"{order} {call_id} {cents}"

    async with Engine(import_tools([pay])) as engine:
        paid = result_of(await engine.call(RawCall(name="pay", arguments={"order": "A", "call_id": "forged"}, id="c7")))
    assert paid.text.splitlines()[0] == "A c7 5"


async def test_a_tool_without_a_model_has_its_defaults() -> None:
    class Pay(BaseTool):
        name: str = "pay"
        description: str = "Pay."

        def _run(self, order: str, cents: int = 70_000) -> str:
            return f"{order} {cents}"

    result, seen = await run(Pay(), order="A")
    assert (result.text, seen) == ("A 70000", {"order": "A", "cents": 70_000})


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_default_that_is_a_model_reaches_the_tool_as_it_is(framework: str) -> None:
    def pay(order: str, limits: Limits = NO_LIMITS) -> str:
        """Pay."""
        return f"{order} {limits.cents}"

    async with Engine(import_tools([FRAMEWORKS[framework](pay)])) as engine:
        assert result_of(await engine.call(RawCall(name="pay", arguments={"order": "A"}))).text == "A 100"


async def test_nested_values_and_additional_arguments_stay() -> None:
    class Line(BaseModel):
        price: Decimal
        amount: int = 1

    class Order(BaseModel):
        model_config = ConfigDict(extra="forbid")
        lines: list[Line]
        tags: set[str] = set()

    def order(lines: list[Line], tags: set[str]) -> str:
        """Order."""
        return f"{lines[0].price * lines[0].amount} {sorted(tags)}"

    tool = StructuredTool.from_function(order, args_schema=Order)
    result, seen = await run(tool, lines=[{"price": "2.50"}], tags=["b", "a"])
    assert (result.text, seen) == ("2.5 ['a', 'b']", {"lines": [{"price": 2.5}], "tags": ["a", "b"]})


async def test_the_record_has_the_arguments_that_the_tool_got() -> None:
    tools = Shop("langchain").tools
    async with Engine(import_tools(tools)) as engine:
        await engine.call(RawCall(name="refund", arguments={"total": "10.50"}))
        (started,) = bodies(engine, "call.started")
    assert started["arguments"] == {"total": 10.5, "day": "2026-01-31"}


async def test_a_graph_asks_about_the_arguments_with_which_the_tool_runs() -> None:
    made: list[str] = []

    @langchain_tool
    def pay(total: Decimal, currency: str = "EUR") -> str:
        """Pay."""
        made.append(f"{total} {currency}")
        return "paid"

    async with Engine(import_tools([pay], options={"pay": {"requires_approval": True}})) as engine:
        model = ScriptedChat(steps=[says(call("pay", total="10.50")), says(call("pay", "c2", total="ten")), says(text="done")])
        agent: Any = create_agent(model, [pay], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "t"}}
        asked = (await agent.ainvoke({"messages": [HumanMessage("go")]}, thread))["__interrupt__"][0].value
        assert asked["args"] == {"total": 10.5, "currency": "EUR"}
        assert asked["description"] == 'Run pay with {"total":10.5,"currency":"EUR"}?'
        ended = await agent.ainvoke(Command(resume={"type": "approve"}), thread)
    assert "__interrupt__" not in ended
    assert '"code":"schema_invalid"' in tool_messages(ended)[-1].content
    assert made == ["10.50 EUR"]


async def test_a_toolset_makes_one_key_of_equal_values() -> None:
    shop = Shop("pydantic_ai")

    def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("refund", {"total": total}) for total in ("10.50", 10.5, "1.05e1")])

    async with Engine(import_tools(shop.tools, options={"refund": {"key": "refund:{total}:{day}"}})) as engine:
        await Agent(FunctionModel(answer), toolsets=[CallgateToolset(shop.tools, engine)]).run("go")
    assert shop.made == [(Decimal("10.5"), date(2026, 1, 31))]


async def test_a_toolset_runs_a_tool_whose_only_parameter_is_a_model() -> None:
    made: list[Limits] = []

    def limit(limits: Limits) -> str:
        """Set the limits."""
        made.append(limits)
        return "set"

    def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart("done")] if len(messages) > 1 else [ToolCallPart("limit", {"cents": 7})])

    tools = [PydanticTool(limit)]
    async with Engine(import_tools(tools)) as engine:
        await Agent(FunctionModel(answer), toolsets=[CallgateToolset(tools, engine)]).run("go")
        (started,) = bodies(engine, "call.started")
    assert made == [Limits(cents=7)]
    assert started["arguments"] == {"cents": 7}
