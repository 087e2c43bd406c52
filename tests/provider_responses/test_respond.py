"""`engine.respond` and `engine.schemas`: what to append after a response, and why nothing may be appended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic_ai.messages import ModelResponse

from callgate import Aborted, Engine, Limits, Scope, SqliteJournal, ToolContext, UsageError, tool
from callgate.calls import Image, Text, ToolResult
from callgate.provider_responses import ToolDefinitions, history_items, read_response
from callgate.tools import ToolRegistry
from tests.provider_responses.recorded_bodies import BODIES, WIRE_NAME
from tests.provider_responses.shop import A7, LAMPS, AskAboutRefunds, claude, completion, paid, refund, stock

# What is appended


async def test_a_suspended_response_is_handed_in_again_and_runs_only_what_waited() -> None:
    response = claude(("refund", {"order": "A7"}), ("stock", {"article": "lamp"}))
    async with Engine([refund, stock], policies=[AskAboutRefunds()]) as engine:
        reply = await engine.respond(response)
        assert (reply.ended, reply.messages, reply.results, reply.done) == ("suspended", [], [], True)
        (waiting,) = reply.suspended
        assert waiting.question in reply.reason
        await engine.approve(waiting.approval_id, by="ann")
        again = await engine.respond(response)
        assert [block["tool_use_id"] for block in again.messages[1]["content"]] == ["toolu_0", "toolu_1"]
        assert await engine.respond(response)
    assert paid == ["A7"]


async def test_a_question_about_a_call_that_a_tool_makes_is_among_those_of_the_reply() -> None:
    """Its tool has ended, so the conversation goes on; a yes counts when a tool makes the call again."""

    @tool
    async def cancel(ctx: ToolContext, order: str) -> str:
        """Cancel an order."""
        return (await ctx.call("outer", {"order": order})).status

    @tool
    async def outer(ctx: ToolContext, order: str) -> str:
        """Refund an order by another tool."""
        return (await ctx.call("refund", {"order": order})).status

    scope = Scope(run="r", conversation="r")
    async with Engine([cancel, outer, refund], policies=[AskAboutRefunds()]) as engine:
        reply = await engine.respond(claude(("cancel", {"order": "A7"})), scope)
        assert (reply.ended, len(reply.messages)) == (None, 2)
        (waiting,) = reply.suspended
        assert (waiting.tool, waiting.question, paid) == ("refund", "Refund?", [])
        await engine.approve(waiting.approval_id, by="ann")
        later = await engine.respond(claude(("cancel", {"order": "A7"}), message_id="msg_2"), scope)
        assert later.suspended == ()
    assert paid == ["A7"]


async def test_a_question_about_a_call_that_a_tool_tries_again_is_asked_once() -> None:
    @tool
    async def cancel(ctx: ToolContext, order: str) -> str:
        """Cancel an order, and try twice."""
        return " ".join([(await ctx.call("refund", {"order": order})).status for _ in range(2)])

    async with Engine([cancel, refund], policies=[AskAboutRefunds()]) as engine:
        reply = await engine.respond(claude(("cancel", {"order": "A7"})), Scope(run="r"))
        assert [waiting.tool for waiting in reply.suspended] == ["refund"]


async def test_a_denied_call_has_a_result_that_tells_the_model_so() -> None:
    async with Engine([refund], policies=[AskAboutRefunds()]) as engine:
        (waiting,) = (await engine.respond(completion(A7))).suspended
        await engine.deny(waiting.approval_id, by="ann", reason="no receipt")
        reply = await engine.respond(completion(A7))
    assert reply.ended is None
    assert "no receipt" in str(reply.messages[1]["content"])
    assert paid == []


async def test_an_answer_with_too_many_calls_is_no_error_of_the_provider() -> None:
    async with Engine([refund], limits=Limits(calls_per_message=1)) as engine:
        reply = await engine.respond(claude(("refund", {"order": "A7"}), ("refund", {"order": "B8"})))
    assert (reply.ended, paid) == ("aborted", [])
    assert reply.reason.startswith("the answer cannot be read (too_many_calls): The answer has more than 1 calls")


async def test_after_an_abort_only_calls_with_results_are_appended() -> None:
    """A call without a name ends its message; the calls beside it have results which say that they were not started."""
    async with Engine([stock]) as engine:
        reply = await engine.respond(completion(LAMPS, ("", "{}")))
        nothing = await engine.respond(completion(("", "{}")))
    assert (reply.ended, reply.done) == ("aborted", True)
    assert any(isinstance(outcome, Aborted) for outcome in reply.outcomes)
    assistant, result = reply.messages
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_0"]
    assert "not_started" in str(result["content"])
    assert (nothing.ended, nothing.messages) == ("aborted", [])


async def test_a_restart_appends_nothing() -> None:
    @tool(effect="none")
    def look() -> dict[str, object]:
        """Look."""
        return {"type": "context_restart_image"}

    async def add(_: object) -> bool:
        return True

    async with Engine([look, stock], restart=add) as engine:
        reply = await engine.respond(completion(LAMPS, ("look", "{}")))
    assert (reply.ended, reply.messages) == ("restarted", [])


async def test_calls_that_the_limit_cut_get_an_error_and_the_history_stays_valid() -> None:
    async with Engine([refund, stock]) as engine:
        reply = await engine.respond(completion(LAMPS, ("refund", '{"order": "A'), finish="length"))
        bedrock = {"toolUse": {"toolUseId": "t", "name": "refund", "input": {"order": "A7"}}}
        output = {"message": {"role": "assistant", "content": [bedrock]}}
        whole = await engine.respond({"output": output, "stopReason": "max_tokens"})
    assert (reply.finish, reply.done, reply.ended) == ("length", False, None)
    assistant, *results = reply.messages
    assert [call["id"] for call in assistant["tool_calls"]] == [result["tool_call_id"] for result in results]
    assert json.loads(assistant["tool_calls"][1]["function"]["arguments"])
    assert results[0]["content"] == "4"
    assert "truncated" in str(results[1]["content"])
    assert "'status': 'error'" in str(whole.messages[1])
    assert paid == []


async def test_an_answer_that_the_provider_wants_to_continue_is_not_done() -> None:
    async with Engine([stock]) as engine:
        paused = await engine.respond(claude(text="Searching.", reason="pause_turn"))
        cut = await engine.respond(claude(text="There ar", reason="max_tokens"))
        refused = await engine.respond(completion(finish="stop", content=None) | {"id": "r"})
    assert (paused.done, paused.finish, len(paused.messages)) == (False, "pause", 1)
    assert (cut.done, cut.finish, cut.text) == (True, "length", "There ar")
    assert (refused.done, refused.messages) == (True, [])


async def test_the_body_of_a_model_on_bedrock_is_read_as_what_it_is() -> None:
    body = claude(("stock", {"article": "lamp"}), message_id="msg_bdrk_1") | {"stop_sequence": None}
    async with Engine([stock]) as engine:
        shown, named = await engine.respond(body), await engine.respond(body, provider="bedrock.invoke")
    assert shown.messages == named.messages
    assert (shown.api, named.api) == ("anthropic.messages", "bedrock.invoke")


async def test_a_refusal_of_the_model_is_an_answer() -> None:
    response = completion(finish="stop")
    response["choices"][0]["message"]["refusal"] = "I cannot."
    async with Engine([stock]) as engine:
        reply = await engine.respond(response)
    assert (reply.done, reply.text) == (True, "I cannot.")


async def test_actions_of_the_provider_itself_are_sent_back_and_not_run() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "lamps"}}
    call = {"type": "function_call", "call_id": "c", "name": "stock", "arguments": '{"article": "lamp"}', "status": "completed"}
    async with Engine([stock]) as engine:
        reply = await engine.respond({"id": "resp_1", "object": "response", "status": "completed", "output": [search, call]})
        alone = await engine.respond({"id": "resp_2", "object": "response", "status": "completed", "output": [search]})
    assert reply.messages[0] == search
    assert [item["type"] for item in reply.results] == ["function_call_output"]
    assert (alone.done, alone.messages) == (True, [search])


def test_images_are_part_of_the_results() -> None:
    """Where a result holds only text, the images follow in a message of the user."""
    for provider, body in BODIES.items():
        response = read_response(body, provider)
        content = (Text(text="see"), Image(data="aGk=", mime_type="image/png"))
        results = [ToolResult(id=call.id, uid="u", name=call.name, status="ok", content=content) for call in response.calls]
        items = history_items(response, results)
        assert str(items.messages).count("aGk=") == 2
        assert items.messages[len(items.messages) - len(items.results) :] == items.results


async def test_a_dict_may_contain_objects_of_an_sdk() -> None:
    from openai.types.chat.chat_completion import Choice

    response = completion(LAMPS)
    whole = completion(LAMPS)
    response["choices"] = [Choice.model_validate(response["choices"][0])]
    async with Engine([stock]) as engine:
        assert (await engine.respond(response)).messages == (await engine.respond(whole)).messages


# Repeats


async def test_a_response_that_is_handed_in_twice_is_replayed_and_another_one_is_not(tmp_path: Path) -> None:
    """The host counts no iterations. Servers give the same call ids in every message."""
    journal = tmp_path / "journal.db"
    for _ in range(2):
        async with Engine([refund], journal=SqliteJournal(journal)) as engine:
            for message_id in ("chatcmpl-1", "chatcmpl-2"):
                reply = await engine.respond(completion(A7) | {"id": message_id}, Scope(run="r"))
                assert reply.message_id == message_id
                assert "refunded A7" in str(reply.messages[1]["content"])
    assert paid == ["A7", "A7"]


@pytest.mark.parametrize("provider", ["gemini", "ollama"])
async def test_calls_without_ids_are_recognised_by_their_message(provider: str) -> None:
    text = json.dumps(BODIES[provider]).replace(WIRE_NAME, "refund").replace('"article": "lamp"', '"order": "A7"')
    body = json.loads(text)
    other = body | {"responseId": "r-2"} if provider == "gemini" else body | {"created_at": "2027"}
    async with Engine([refund]) as engine:
        for response in (body, body, other):
            await engine.respond(response, Scope(run="r"))
    assert paid == ["A7", "A7"]


async def test_the_hosts_own_message_id_is_kept() -> None:
    async with Engine([refund]) as engine:
        for message_id in ("one", "one", "two"):
            assert (await engine.respond(completion(A7), Scope(message_id=message_id))).message_id == message_id
    assert paid == ["A7", "A7"]


# Names


async def test_schemas_and_respond_agree_on_names_that_a_provider_refuses() -> None:
    """Anthropic refuses the tool's name and the parameter's; a tool that is registered in between changes neither."""
    ran: list[object] = []

    @tool(name="crm.find", effect="none", parameters={"type": "object", "properties": {"the name": {"type": "string"}}})
    def find(**given: object) -> str:
        """Find a customer."""
        ran.append(given)
        return "found"

    async with Engine([find]) as engine:
        (declared,) = engine.schemas("anthropic")
        name, (parameter,) = str(declared["name"]), declared["input_schema"]["properties"]
        assert "." not in name
        assert " " not in parameter
        engine.register(stock)
        reply = await engine.respond(claude((name, {parameter: "ann"})))
        assert reply.messages[0]["content"][0]["input"] == {parameter: "ann"}
        assert reply.messages[0]["content"][0]["name"] == name
        assert len(engine.schemas("anthropic")) == 2
    async with Engine([find]) as engine:  # a process that has not declared the tools itself
        await engine.respond(claude((name, {parameter: "ann"})))
    assert ran == [{"the name": "ann"}] * 2


def test_schemas_offers_the_named_tools_or_those_that_deliberate_mode_allows() -> None:
    engine = Engine([refund, stock])
    scope = Scope(deliberate=True, allowed_tools=frozenset({"stock"}))
    assert [one["name"] for one in engine.schemas("openai-responses", ["stock", "refund"])] == ["stock", "refund"]
    assert [one["name"] for one in engine.schemas("anthropic", scope=scope)] == ["stock"]
    assert [one["name"] for one in engine.schemas("anthropic", scope=Scope())] == ["refund", "stock"]
    assert engine.schemas("openai") == engine.tools.openai()
    assert Engine([]).schemas("bedrock") == []
    with pytest.raises(UsageError, match="Did you mean 'stock'"):
        engine.schemas("anthropic", ["stok"])
    with pytest.raises(UsageError, match="Did you mean 'anthropic'"):
        engine.schemas("antropic")
    for written in ("openai_responses", "OpenAI Responses", "openai.response"):
        with pytest.raises(UsageError, match="Did you mean 'openai-responses'"):
            engine.schemas(written)
    with pytest.raises(UsageError, match=r"Did you mean 'bedrock\.invoke'"):
        engine.schemas("bedrock_invoke")
    with pytest.raises(UsageError, match="must be a name"):
        engine.schemas(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("google", "gemini"),
        ("google_genai", "gemini"),
        ("AWS", "bedrock"),
        ("boto3", "bedrock"),
        ("converse", "bedrock"),
        ("claude", "anthropic"),
    ],
)
def test_the_name_of_a_company_or_an_sdk_is_refused_with_that_of_its_provider(written: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{meant}'"):
        Engine([stock]).schemas(written)


def test_definitions_of_the_public_piece_are_those_of_the_engine() -> None:
    tools = ToolDefinitions(ToolRegistry([stock]))
    assert tools.definitions("gemini") == Engine([stock]).schemas("gemini")


# What is no response


async def _coroutine() -> None: ...


REFUSED: Mapping[str, tuple[object, str]] = {
    "nothing": (None, "None"),
    "text": ('{"choices": []}', "json.loads"),
    "bytes": (b"{}", "json.loads"),
    "an empty dict": ({}, "an empty dict"),
    "a list": ([completion(A7)], "a list of 1"),
    "a message": (completion(A7)["choices"][0]["message"], "part of one"),
    "a choice": (completion(A7)["choices"][0], "part of one"),
    "an error": ({"error": {"message": "no such model", "code": "model_not_found"}}, "model_not_found: no such model"),
    "an error of Anthropic": ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "overloaded_error: busy"),
    "a stream": (iter(()), "engine.watch"),
    "a stream of boto3": ({"ResponseMetadata": {}, "stream": iter(())}, "engine.watch"),
    "an unread body": ({"ResponseMetadata": {}, "body": Path(__file__).open("rb")}, "json.loads"),  # noqa: SIM115
    "two choices": ({"choices": [{}, {}]}, "2 choices"),
    "a response in the background": ({"object": "response", "status": "queued", "output": []}, "'queued'"),
    "an object": (object(), "an object"),
    "a class": (Scope, "the class Scope. Give it the whole response"),
    "a message of LangChain": (AIMessage("hi"), "an AIMessage, which is of LangChain and not of a provider's SDK"),
    "a message of Pydantic AI": (ModelResponse(parts=[]), "a ModelResponse, which is of Pydantic AI and not of a provider's SDK"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_response_is_refused_with_what_was_given(given: object, said: str) -> None:
    async with Engine([stock]) as engine:
        with pytest.raises(UsageError, match=r"engine\.respond was given") as error:
            await engine.respond(given)
    assert said in str(error.value)


async def test_a_request_that_was_not_awaited_is_refused() -> None:
    waiting = _coroutine()
    async with Engine([stock]) as engine:
        with pytest.raises(UsageError, match="Await the request first"):
            await engine.respond(waiting)
    waiting.close()


async def test_a_response_of_another_provider_than_the_named_one_is_refused() -> None:
    async with Engine([stock]) as engine:
        with pytest.raises(UsageError, match=r"'anthropic' .* has the format of openai\.chat"):
            await engine.respond(completion(LAMPS), provider="anthropic")
        assert (await engine.respond(completion(LAMPS), provider="groq")).messages


@pytest.mark.parametrize(
    "response",
    [
        {"choices": []},
        {"id": "resp_1", "object": "response", "status": "failed", "error": {"code": "server_error", "message": "busy"}, "output": []},
        completion(A7, finish="error"),
    ],
    ids=["no choice", "failed", "ended with an error"],
)
async def test_a_response_that_reports_an_error_runs_nothing(response: dict[str, Any]) -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(response)
    assert (reply.ended, reply.messages, reply.done, reply.finish) == ("aborted", [], True, "error")
    assert reply.reason
    assert paid == []


def _response(status: str, **more: Any) -> dict[str, Any]:
    """Return a response of the responses API with a complete call."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "refund", "arguments": A7[1], "status": "completed"}
    return {"id": "resp_1", "object": "response", "status": status, "output": [call], **more}


def _gemini(reason: str) -> dict[str, Any]:
    part = {"functionCall": {"name": "refund", "args": {"order": "A7"}}}
    return {"responseId": "r", "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": reason}]}


def _bedrock(reason: str) -> dict[str, Any]:
    call = {"toolUse": {"toolUseId": "t", "name": "refund", "input": {"order": "A7"}}}
    return {"output": {"message": {"role": "assistant", "content": [call, call]}}, "stopReason": reason}


BLOCKED: Mapping[str, tuple[dict[str, Any], str]] = {
    "chat completion": (completion(A7, A7, finish="content_filter"), "content_filter"),
    "incomplete response": (_response("incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
    "cancelled response": (_response("cancelled"), "cancelled"),
    "refusal of Anthropic": (claude(("refund", {"order": "A7"}), ("refund", {"order": "A7"}), reason="refusal"), "refusal"),
    "safety": (_gemini("SAFETY"), "SAFETY"),
    "limited account": (_gemini("PUP_LIMITED_DISABLED"), "PUP_LIMITED_DISABLED"),
    "prohibited": (_gemini("PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
    "guardrail": (_bedrock("guardrail_intervened"), "guardrail_intervened"),
    "filter of Bedrock": (_bedrock("content_filtered"), "content_filtered"),
}


@pytest.mark.parametrize(("response", "said"), BLOCKED.values(), ids=BLOCKED)
async def test_a_message_that_the_provider_blocked_or_cancelled_runs_nothing(response: dict[str, Any], said: str) -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(response)
    assert (reply.ended, reply.messages, reply.done) == ("aborted", [], True)
    assert said in reply.reason
    assert paid == []


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_response_that_is_not_complete_is_refused_although_it_has_a_call(status: str) -> None:
    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match=f"'{status}'.*Wait for it"):
            await engine.respond(_response(status))
    assert paid == []


async def test_a_complete_call_of_a_message_that_met_its_limit_runs() -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(_response("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert (reply.ended, reply.finish, paid) == (None, "length", ["A7"])


def test_respond_sync_does_the_same() -> None:
    engine = Engine([refund])
    reply = engine.respond_sync(completion(A7))
    assert reply.results == [{"role": "tool", "tool_call_id": "call_0", "content": "refunded A7"}]
    engine.close_sync()

    async def inside() -> None:
        with pytest.raises(UsageError, match="event loop"):
            engine.respond_sync(completion(A7))

    asyncio.run(inside())


async def test_an_answer_counts_for_a_call_of_one_conversation_only() -> None:
    """Two users make the same call: each needs an answer of their own."""
    ann, bob = completion(A7) | {"id": "m_ann"}, completion(A7) | {"id": "m_bob"}
    async with Engine([refund], policies=[AskAboutRefunds()]) as engine:
        asked_ann = await engine.respond(ann, Scope(conversation="ann"))
        asked_bob = await engine.respond(bob, Scope(conversation="bob"))
        assert asked_ann.suspended[0].approval_id != asked_bob.suspended[0].approval_id
        await engine.approve(asked_ann.suspended[0].approval_id)
        assert (await engine.respond(bob, Scope(conversation="bob"))).ended == "suspended"
        assert paid == []
        assert (await engine.respond(ann, Scope(conversation="ann"))).ended is None
    assert paid == ["A7"]


async def test_equal_calls_of_one_message_are_answered_one_by_one() -> None:
    async with Engine([refund], policies=[AskAboutRefunds()]) as engine:
        first, second = (await engine.respond(completion(A7, A7))).suspended
        await engine.approve(first.approval_id)
        await engine.deny(second.approval_id, reason="twice")
        reply = await engine.respond(completion(A7, A7))
    one, two = reply.results
    assert one["content"] == "refunded A7"
    assert "twice" in two["content"]
    assert paid == ["A7"]


async def test_a_gemini_response_in_snake_case_keeps_its_call() -> None:
    """As a dict of Google's SDK has it, from which a service has removed everything but the candidates."""
    part = {"function_call": {"name": "refund", "args": {"order": "A7"}}}
    response = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finish_reason": "STOP"}]}
    async with Engine([refund]) as engine:
        reply = await engine.respond(response)
    assert (paid, reply.done, len(reply.results)) == (["A7"], False, 1)


@pytest.mark.parametrize(
    "chunk",
    [
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "x"}}]},
        {"model": "m", "created_at": "2026-11-24T10:00:00Z", "message": {"role": "assistant", "content": "x"}, "done": False},
    ],
    ids=["openai", "ollama"],
)
async def test_a_chunk_of_a_stream_is_refused(chunk: dict[str, Any]) -> None:
    async with Engine([stock]) as engine:
        with pytest.raises(UsageError, match=r"Give the whole stream to engine\.watch"):
            await engine.respond(chunk)
