"""`engine.schemas` and `engine.respond` with the objects that the providers' own SDKs return, and with what these SDKs send next."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from callgate import Engine, Scope, UsageError
from callgate.calls import Image, Resource
from tests.provider_responses.recorded_bodies import ANSWERS, BODIES, QUESTIONS, WIRE_NAME, body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS, kept
from tests.provider_responses.shop import LookUp

pytestmark = SDK_WARNINGS


def results(provider: str, sent: dict[str, Any]) -> list[tuple[str | None, str, bool | None]]:
    """Return id, text and error mark of each result in a request; None where the API has no such field."""
    match provider:
        case "openai" | "mistral" | "cohere":
            return [(item["tool_call_id"], item["content"], None) for item in sent["messages"] if item["role"] == "tool"]
        case "ollama":
            return [(item["tool_name"], item["content"], None) for item in sent["messages"] if item["role"] == "tool"]
        case "openai-responses":
            return [(item["call_id"], item["output"], None) for item in sent["input"] if item.get("type") == "function_call_output"]
        case "anthropic":
            blocks = sent["messages"][-1]["content"]
            return [(block["tool_use_id"], block["content"], block.get("is_error", False)) for block in blocks]
        case "gemini":
            found = [part["functionResponse"] for part in sent["contents"][-1]["parts"]]
            return [(one["name"], "".join(one["response"].values()), "error" in one["response"]) for one in found]
        case _:
            found = [block["toolResult"] for block in sent["messages"][-1]["content"]]
            return [(one["toolUseId"], one["content"][0]["text"], one.get("status") == "error") for one in found]


IDS = {
    "openai": ("call_a", "call_b"),
    "cohere": ("call_a", "call_b"),
    "openai-responses": ("call_a", "call_b"),
    "mistral": ("abcdefgh1", "abcdefgh2"),
    "anthropic": ("toolu_a", "toolu_b"),
    "bedrock": ("tooluse_a", "tooluse_b"),
    "gemini": (WIRE_NAME, "fly"),
    "ollama": (WIRE_NAME, "fly"),
}


@pytest.mark.parametrize("provider", BODIES)
async def test_a_response_of_an_sdk_is_answered_and_the_sdk_sends_the_reply(provider: str) -> None:
    """The conversation goes on as the tutorial of every SDK has it; a name that the provider refuses is mapped and mapped back."""
    ask, messages = ASK[provider], list(QUESTIONS[provider])
    with RecordedServer(("application/json", body(BODIES[provider])), ("application/json", body(ANSWERS[provider]))) as server:
        async with Engine([LookUp()]) as engine:
            tools = engine.schemas(provider)
            reply = await engine.respond(await ask(server.url, messages, tools), Scope(run="r"))
            assert (reply.done, reply.ended, len(reply.outcomes)) == (False, None, 2)
            messages.extend(reply.messages)
            last = await engine.respond(await ask(server.url, messages, tools), Scope(run="r"))
            assert (last.done, last.text, last.outcomes) == (True, "There are 3.", ())
            assert len(last.messages) == 1
    first, second = server.requests
    assert WIRE_NAME in str(first)
    (first_id, first_text, first_failed), (second_id, second_text, second_failed) = results(provider, second)
    assert (first_id, second_id) == IDS[provider]
    assert first_text == "3"
    assert not first_failed
    assert "fly" in second_text
    assert second_failed in (True, None)
    assert reply.results == reply.messages[len(reply.messages) - len(reply.results) :]


@pytest.mark.parametrize("provider", BODIES)
async def test_a_dict_of_a_response_is_answered_as_the_object_is(provider: str) -> None:
    with RecordedServer(("application/json", body(BODIES[provider]))) as server:
        async with Engine([LookUp()]) as engine:
            given = await ASK[provider](server.url, QUESTIONS[provider], engine.schemas(provider))
            reply = await engine.respond(given, Scope(run="object"))
            if not isinstance(given, dict):
                dumped = await engine.respond(given.model_dump(), Scope(run="dict"))
                signed_alike = str(dumped.messages).replace("+/", "-_")  # Google's SDK writes Base64 in the alphabet for URLs
                assert (signed_alike, dumped.message_id) == (str(reply.messages), reply.message_id)
            assert (await engine.respond(BODIES[provider], Scope(run="body"))).text == reply.text


async def test_arguments_that_are_named_like_fields_of_bytes_are_not_changed() -> None:
    class Store(LookUp):
        """Store data."""

        name = "store"
        parameters = {"type": "object", "properties": {"data": {"type": "string"}}}

        async def execute(self, actor: str, **params: Any) -> Any:
            return {"bytes": params["data"]}

    use = {"toolUse": {"toolUseId": "t", "name": "store", "input": {"data": "aGk="}}}
    output = {"message": {"role": "assistant", "content": [use]}}
    async with Engine([Store()]) as engine:
        reply = await engine.respond({"ResponseMetadata": {"RequestId": "r"}, "output": output, "stopReason": "tool_use"})
    assert reply.messages[0]["content"] == [use]


@pytest.mark.filterwarnings("ignore")
async def test_items_and_definitions_have_the_types_of_the_sdk() -> None:
    """The SDKs of OpenAI and Anthropic check nothing that they send, but they publish its types; the others check it themselves."""
    from anthropic.types import MessageParam, ToolUnionParam
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
    from openai.types.responses import ResponseInputItemParam, ToolParam

    types: dict[str, tuple[Any, Any]] = {
        "openai": (list[ChatCompletionMessageParam], list[ChatCompletionToolUnionParam]),
        "openai-responses": (list[ResponseInputItemParam], list[ToolParam]),
        "anthropic": (list[MessageParam], list[ToolUnionParam]),
    }
    async with Engine([LookUp()]) as engine:
        for provider, (item_type, tool_type) in types.items():
            reply = await engine.respond(BODIES[provider])
            assert TypeAdapter(item_type).validate_python(reply.messages)
            assert TypeAdapter(tool_type).validate_python(engine.schemas(provider))


class Stock(BaseModel):
    """Count an article."""

    article: str


async def test_responses_of_other_interfaces_of_an_sdk_are_read() -> None:
    """OpenAI's `parse()` adds parsed values, and Anthropic has a beta interface."""
    import anthropic
    import openai

    bodies = [BODIES["openai"], BODIES["openai-responses"], BODIES["anthropic"]]
    with RecordedServer(*[("application/json", body(one)) for one in bodies]) as server:
        client = kept(openai.AsyncOpenAI(api_key="x", base_url=server.url, max_retries=0))
        claude = kept(anthropic.AsyncAnthropic(api_key="x", base_url=server.url, max_retries=0))
        tool: Any = openai.pydantic_function_tool(Stock, name=WIRE_NAME)
        flying: Any = {"type": "function", "function": {"name": "fly", "strict": True, "parameters": {}}}
        messages = QUESTIONS["openai"]
        responses = [
            await client.chat.completions.parse(model="m", messages=messages, tools=[tool, flying]),
            await client.responses.parse(model="m", input=messages),
            await claude.beta.messages.create(model="m", max_tokens=9, messages=messages),
        ]
    async with Engine([LookUp()]) as engine:
        for response, sent in zip(responses, bodies, strict=True):
            parsed, plain = await engine.respond(response), await engine.respond(sent)
            assert (parsed.messages, len(parsed.outcomes)) == (plain.messages, 2)


async def test_a_chat_of_google_genai_that_keeps_the_history_takes_the_results() -> None:
    from google import genai

    with RecordedServer(("application/json", body(BODIES["gemini"])), ("application/json", body(ANSWERS["gemini"]))) as server:
        async with Engine([LookUp()]) as engine:
            config: Any = {"tools": engine.schemas("gemini"), "automatic_function_calling": {"disable": True}}
            client = genai.Client(api_key="x", http_options=genai.types.HttpOptions(base_url=server.url))
            chat = client.aio.chats.create(model="gemini-3-pro", config=config)
            reply = await engine.respond(await chat.send_message("How many lamps?"))
            parts = [genai.types.Part.model_validate(part) for turn in reply.results for part in turn["parts"]]
            assert (await chat.send_message(parts)).text == "There are 3."
    assert [found[0] for found in results("gemini", server.requests[1])] == [WIRE_NAME, "fly"]


async def test_a_raw_response_of_an_sdk_is_refused_with_what_to_give() -> None:
    import openai

    with RecordedServer(("application/json", body(BODIES["openai"]))) as server:
        client = kept(openai.AsyncOpenAI(api_key="x", base_url=server.url, max_retries=0))
        raw = await client.chat.completions.with_raw_response.create(model="m", messages=QUESTIONS["openai"])
        async with Engine([LookUp()]) as engine:
            with pytest.raises(UsageError, match=r"response\.parse\(\)"):
                await engine.respond(raw)
            assert await engine.respond(raw.parse())


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
DRAWN = "YW4gaW1hZ2Ugd2hvc2UgYnl0ZXMgc2hvdyBubyB0eXBl"
"""Bytes that do not show which type of image they are."""


@pytest.mark.parametrize("provider", BODIES)
async def test_an_image_that_a_tool_returns_reaches_the_provider(provider: str) -> None:
    class Draw(LookUp):
        """Draw an article."""

        async def execute(self, actor: str, **params: Any) -> Any:
            return Image(data=PNG, mime_type="image/png")

    with RecordedServer(("application/json", body(BODIES[provider])), ("application/json", body(ANSWERS[provider]))) as server:
        async with Engine([Draw()]) as engine:
            tools, messages = engine.schemas(provider), list(QUESTIONS[provider])
            reply = await engine.respond(await ASK[provider](server.url, messages, tools))
            await ASK[provider](server.url, [*messages, *reply.messages], tools)
    assert str(server.requests[1]).replace("mNk-A8", "mNk+A8").count(PNG) == 1  # Google's SDK sends the URL-safe alphabet


@pytest.mark.parametrize(
    ("provider", "kind", "left_out"),
    [
        ("gemini", "gif", True),
        ("gemini", "svg+xml", True),
        ("gemini", "heic", False),
        ("ollama", "svg+xml", True),
        ("ollama", "gif", False),
    ],
)
async def test_an_image_of_a_type_that_the_provider_refuses_is_sent_as_text(provider: str, kind: str, left_out: bool) -> None:
    """The provider would refuse this request and all that follow."""

    class Draw(LookUp):
        """Draw an article."""

        async def execute(self, actor: str, **params: Any) -> Any:
            return [Image(data=DRAWN, mime_type=f"image/{kind}"), Resource.from_bytes(b"GIF89a", mime_type=f"image/{kind}")]

    with RecordedServer(("application/json", body(BODIES[provider])), ("application/json", body(ANSWERS[provider]))) as server:
        async with Engine([Draw()]) as engine:
            tools, messages = engine.schemas(provider), list(QUESTIONS[provider])
            reply = await engine.respond(await ASK[provider](server.url, messages, tools))
            await ASK[provider](server.url, [*messages, *reply.messages], tools)
    sent = str(server.requests[1])
    assert (DRAWN in sent, f"An image of type image/{kind}" in sent) == (not left_out, left_out)
    assert ("R0lGODlh" in sent) == (provider == "gemini" and not left_out)


async def test_signatures_and_encrypted_reasoning_come_back_as_the_sdk_takes_them() -> None:
    """boto3 and google-genai take bytes where the JSON of the API has Base64."""
    for provider, found in (("bedrock", "redactedContent"), ("gemini", "thoughtSignature")):
        with RecordedServer(*[("application/json", body(BODIES[provider]))] * 2) as server:
            async with Engine([LookUp()]) as engine:
                tools, messages = engine.schemas(provider), list(QUESTIONS[provider])
                reply = await engine.respond(await ASK[provider](server.url, messages, tools))
                await ASK[provider](server.url, [*messages, *reply.messages], tools)
        assert f"'{found}': 'AAEC+/8='" in str(server.requests[1]).replace("-", "+").replace("_8", "/8")


async def test_a_block_that_boto3_does_not_know_is_left_out_of_what_it_sends() -> None:
    """boto3 reads such a block without its content, and refuses a request that has it."""
    use = {"toolUse": {"toolUseId": "t1", "name": WIRE_NAME, "input": {"article": "lamp"}}}
    content = [{"laterBlock": {"x": 1}}, {"reasoningContent": {"laterReasoning": {"x": 1}}}, use]
    answer = {**BODIES["bedrock"], "output": {"message": {"role": "assistant", "content": content}}}
    with RecordedServer(("application/json", body(answer)), ("application/json", body(ANSWERS["bedrock"]))) as server:
        async with Engine([LookUp()]) as engine:
            tools, messages = engine.schemas("bedrock"), list(QUESTIONS["bedrock"])
            reply = await engine.respond(await ASK["bedrock"](server.url, messages, tools))
            await ASK["bedrock"](server.url, [*messages, *reply.messages], tools)
    assert server.requests[1]["messages"][1]["content"] == [use]
