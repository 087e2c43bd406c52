"""The contents of model requests: settings, the unchanged messages of the model, and calls with their results."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine, Tool, tool
from callgate.agent import Agent, ModelSettings, Settings
from callgate.calls import Text
from callgate.loop_decision import LoopRules
from callgate.messages import AssistantMessage, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.model_events import CallOpened, CallSealed, TextDelta
from callgate.models.providers import model
from callgate.testing import Call, ScriptedServer
from tests.agent.scripted_model import Answer, Script, call, ends, says


@tool(effect="none")
async def search(query: str) -> list[str]:
    """Search."""
    return []


THOUGHT = Reasoning(text="Let me see.", opaque={"encrypted_content": "b64==", "id": "rs_1"})
NATIVE = Native(kind="web_search_call", id="ws_1", item={"type": "web_search_call", "status": "completed"})


def searches(call_id: str) -> ToolCall:
    return call("search", {"query": "tea"}, id=call_id)


def thinking(call_id: str) -> Answer:
    whole = ends(THOUGHT, NATIVE, Text(text="I search."), searches(call_id))  # type: ignore[arg-type]
    return [TextDelta("I search."), CallOpened(0, call_id, "search"), CallSealed(0, searches(call_id)), whole]


async def test_every_request_has_the_model_settings_and_the_unchanged_conversation() -> None:
    script = Script(thinking("a"), thinking("b"), says("There is none."))
    settings: dict[str, Any] = {
        "model_settings": ModelSettings(max_tokens=77, temperature=0.25, extra={"seed": 7}),
        "instructions": "Be brief.",
    }
    async with Agent(script, tools=[search], **settings) as agent:
        result = await agent.run("Find tea.", conversation="talk")
    assert result.status == "completed"
    assert len(script.requests) == 3
    for request in script.requests:
        assert (request.model, request.max_tokens, request.temperature, request.extra) == ("script-1", 77, 0.25, {"seed": 7})
        assert [spec.name for spec in request.tools] == ["search"]
    assert [context.conversation for context in script.contexts] == ["talk"] * 3
    assert len({id(context) for context in script.contexts}) == 1, "all passes of a turn must have the same context"
    for passed, seen in enumerate(script.seen):
        assert seen[:2] == [SystemMessage("Be brief."), UserMessage("Find tea.")]
        assert len(seen) == 2 + 2 * passed
        for call_id, answer, outcome in zip("ab"[:passed], seen[2::2], seen[3::2], strict=True):
            assert isinstance(answer, AssistantMessage)
            assert answer.parts == (THOUGHT, NATIVE, Text(text="I search."), searches(call_id))
            assert isinstance(outcome, ToolMessage)
            assert (outcome.call_id, outcome.name, outcome.text) == (call_id, "search", "[]")


async def test_http_requests_repeat_the_models_message_and_add_the_tool_result() -> None:
    """Checks the settings, the tools, the call with its id, and its result."""
    async with ScriptedServer([["I look. ", Call("search", {"query": "tea"})], "There is none."]) as server:
        over_http = model("openai-compatible:any", base_url=server.url)
        async with Agent(over_http, tools=[search], model_settings=ModelSettings(max_tokens=77, temperature=0.25)) as agent:
            await agent.run("Find tea.")
        await over_http.close()
        bodies: list[Any] = [request.body_json for request in server.requests]
    first, second = bodies
    for body in bodies:
        assert (body["model"], body["temperature"]) == ("any", 0.25)
        assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))
        assert [one["function"]["name"] for one in body["tools"]] == ["search"]
    asked, answered, told = second["messages"]
    assert [asked] == first["messages"]
    assert (answered["role"], answered["content"].strip()) == ("assistant", "I look.")
    assert [one["function"]["name"] for one in answered["tool_calls"]] == ["search"]
    assert (told["role"], told["tool_call_id"], told["content"]) == ("tool", answered["tool_calls"][0]["id"], "[]")


def finding(value: object) -> Tool:
    @tool(name="search", effect="none")
    async def found(query: str) -> object:
        """Search."""
        return value

    return found


@pytest.mark.parametrize(
    "value", [[], {"results": []}, {"found": False}, None, "", 0, False, {"success": True, "data": []}, {"success": True, "found": False}]
)
async def test_empty_results_are_not_errors_in_a_row_and_do_not_end_the_run(value: object) -> None:
    """An empty result is not an error, neither for the limit of errors in a row nor in strict mode."""
    rounds = [says(call("search", {"query": str(n)}, id=str(n))) for n in range(4)]
    rules = Settings(rules=LoopRules(failures="strict", errors_in_a_row=1))
    script = Script(*rounds, says("There is none."))
    async with Engine([finding(value)]) as engine, Agent(script, engine, settings=rules) as agent:
        result = await agent.run("Find it.")
        assert engine.activity_since_wake == 4
    assert (result.status, result.text) == ("completed", "There is none.")
    assert [one.status for one in result.results] == ["ok"] * 4
    assert len(script.requests) == 5
