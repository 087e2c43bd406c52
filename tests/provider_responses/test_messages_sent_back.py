"""`engine.respond`: the model's message comes back to the provider as the model wrote it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from openai.types.responses import Response

from callgate import Engine, Image, tool
from callgate.calls import Answered, Resource
from tests.provider_responses.shop import claude, completion


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


CITED = {"type": "web_search_result_location", "url": "https://x.test", "title": "X", "encrypted_index": "RUlD", "cited_text": "3 lamps"}


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_citations_of_anthropic_come_back_with_their_text(way: str) -> None:
    """The model finds its sources by them in the next turn."""
    texts = [{"type": "text", "text": "There are 3.", "citations": [CITED]}, {"type": "text", "text": " Anything else?"}]
    head = {**claude(), "stop_reason": None}
    chunks = [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "There are 3."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": CITED}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": " Anything else?"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    async with Engine([look]) as engine:
        whole = {**head, "content": texts, "stop_reason": "end_turn"}
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    assert reply.messages == [{"role": "assistant", "content": texts}]
    assert (reply.text, reply.done) == ("There are 3. Anything else?", True)


DOCUMENT: dict[str, Any] = {
    "title": "Stock",
    "location": {"documentChar": {"documentIndex": 0, "start": 4, "end": 9}},
    "sourceContent": [{"text": "3 lamps"}],
}


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_citations_of_bedrock_come_back_with_their_text(way: str) -> None:
    cited = {"citationsContent": {"content": [{"text": "There are 3."}], "citations": [DOCUMENT]}}
    content = [{"text": "I see. "}, cited, {"text": " More?"}, {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}]
    whole = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "tool_use", "usage": {}, "metrics": {}}
    chunks: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "I see. "}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "There are "}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "3."}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"citation": DOCUMENT}}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"text": " More?"}}},
        {"contentBlockStop": {"contentBlockIndex": 2}},
        {"contentBlockStart": {"contentBlockIndex": 3, "start": {"toolUse": {"toolUseId": "t1", "name": "look"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 3, "delta": {"toolUse": {"input": "{}"}}}},
        {"contentBlockStop": {"contentBlockIndex": 3}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]
    async with Engine([look]) as engine:
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    assert reply.messages[0] == {"role": "assistant", "content": content}
    assert reply.text == "I see. There are 3. More?"


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_the_plan_and_the_citations_of_cohere_come_back_in_their_own_fields(way: str) -> None:
    citation: dict[str, Any] = {"start": 0, "end": 6, "text": "I look", "sources": [{"type": "tool", "id": "t0:0"}], "type": "PLAN"}
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message: dict[str, Any] = {"role": "assistant", "tool_plan": "I look.", "tool_calls": [call], "citations": [citation]}
    whole = {"id": "m1", "finish_reason": "TOOL_CALL", "message": message}
    chunks: list[dict[str, Any]] = [
        {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I "}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "look."}}},
        {"type": "citation-start", "index": 0, "delta": {"message": {"citations": citation}}},
        {"type": "citation-end", "index": 0},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "id": "m1", "delta": {"finish_reason": "TOOL_CALL"}},
    ]
    async with Engine([look]) as engine:
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    assert reply.messages[0] == message
    assert reply.text == ""


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_what_a_model_of_cohere_thought_and_planned_come_back_apart(way: str) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    content = [{"type": "thinking", "thinking": "Is it there?"}]
    message: dict[str, Any] = {"role": "assistant", "tool_plan": "I look.", "content": content, "tool_calls": [call]}
    whole = {"id": "m1", "finish_reason": "TOOL_CALL", "message": message}
    chunks: list[dict[str, Any]] = [
        {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}},
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "thinking", "thinking": "Is it "}}}},
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"thinking": "there?"}}}},
        {"type": "content-end", "index": 0},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I look."}}},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}},
    ]
    async with Engine([look]) as engine:
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    assert reply.messages[0] == message


@pytest.mark.parametrize("arguments", ["null", " null ", "", "{}"])
async def test_arguments_that_are_none_come_back_as_an_empty_object(arguments: str) -> None:
    async with Engine([look]) as engine:
        reply = await engine.respond(completion(("look", arguments)))
    assert reply.messages[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert reply.results[0]["content"] == "seen"


@pytest.mark.parametrize("written", ["functions.look", "default_api:look"])
async def test_a_name_that_the_provider_refuses_comes_back_as_the_name_of_the_tool_that_ran(written: str) -> None:
    """A changed form of what the model wrote would teach it a name that no tool has."""
    async with Engine([look]) as engine:
        reply = await engine.respond(completion((written, "{}"), ("crm.find", "{}")))
    names = [call["function"]["name"] for call in reply.messages[0]["tool_calls"]]
    assert names[0] == "look"
    assert names[1].startswith("crm_find_")
    assert reply.results[0]["content"] == "seen"


async def test_an_id_of_a_server_with_anthropics_api_comes_back_as_the_server_made_it() -> None:
    """A host that appends the model's message itself appends only the results, which refer to it by this id."""
    call = {"type": "tool_use", "id": "functions.look:0", "name": "look", "input": {}}
    async with Engine([look]) as engine:
        reply = await engine.respond({**claude(), "content": [call], "stop_reason": "tool_use"})
    assert reply.messages[0]["content"] == [call]
    assert reply.results[0]["content"][0]["tool_use_id"] == "functions.look:0"


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_a_refusal_comes_back_as_a_refusal(way: str) -> None:
    whole = completion()
    whole["choices"][0] |= {"finish_reason": "stop", "message": {"role": "assistant", "content": None, "refusal": "I can't do that."}}
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}, {"refusal": "I can't"}, {"refusal": " do that."}]
    async with Engine([look]) as engine:
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks_of(whole, pieces)).reply())
    assert reply.messages == [{"role": "assistant", "content": None, "refusal": "I can't do that."}]
    assert (reply.text, reply.done) == ("I can't do that.", True)


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_a_spoken_answer_comes_back_as_the_audio_that_the_provider_keeps(way: str) -> None:
    whole = completion()
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1_900_000_000, "transcript": "Three lamps."}
    whole["choices"][0] |= {"finish_reason": "stop", "message": {"role": "assistant", "content": None, "audio": audio}}
    pieces = [{"audio": {"id": "audio_1"}}, {"audio": {"transcript": "Three"}}, {"audio": {"transcript": " lamps."}}]
    async with Engine([look]) as engine:
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks_of(whole, pieces)).reply())
    assert reply.messages == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]
    assert reply.text == "Three lamps."


MIXED: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "a refusal after content": ([{"content": "A"}, {"refusal": "No"}, {"content": "B"}], {"content": "AB", "refusal": "No"}),
    "content after a refusal": ([{"refusal": "No"}, {"content": "A"}, {"refusal": "."}], {"content": "A", "refusal": "No."}),
    "content beside audio": ([{"content": "A", "audio": {"id": "a", "transcript": "B"}}], {"content": "A", "audio": {"id": "a"}}),
    "audio whose id is late": ([{"audio": {"transcript": "B"}}, {"audio": {"id": "a"}}], {"content": None, "audio": {"id": "a"}}),
    "audio without an id": ([{"audio": {"transcript": "B"}}], {"content": "B"}),
}


@pytest.mark.parametrize(("deltas", "sent"), MIXED.values(), ids=MIXED)
async def test_content_stays_beside_a_refusal_and_a_spoken_answer(deltas: list[dict[str, Any]], sent: dict[str, Any]) -> None:
    async with Engine([look]) as engine:
        reply = await engine.watch(chunks_of(completion(), deltas)).reply()
    assert reply.messages == [{"role": "assistant", **sent}]


SOURCE = {"type": "url_citation", "start_index": 0, "end_index": 5, "url": "https://x.test", "title": "X"}
CONTENTS = {
    "a citation": [{"type": "output_text", "text": "There are 3.", "annotations": [SOURCE]}],
    "two texts": [{"type": "output_text", "text": text, "annotations": []} for text in ("There", " are 3.")],
    "a refusal": [{"type": "refusal", "refusal": "There are 3."}],
}


@pytest.mark.parametrize("way", ["respond", "watch"])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=list(CONTENTS))
async def test_the_content_of_a_message_of_the_responses_api_comes_back_as_it_was(way: str, content: list[dict[str, Any]]) -> None:
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}", "status": "completed"}
    whole = {"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed", "output": [message, call]}
    chunks = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "status": "in_progress", "content": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": whole},
    ]
    async with Engine([look]) as engine:
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    assert reply.messages[0] == message
    assert [item["type"] for item in reply.messages] == ["message", "function_call", "function_call_output"]
    assert reply.text == "There are 3."


def chunks_of(whole: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chunks of a completion's stream."""
    head = {"id": whole["id"], "object": "chat.completion.chunk", "model": whole["model"]}
    ends = [{**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    return [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas] + ends


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_texts_beside_a_cited_one_come_back_without_its_citations(way: str) -> None:
    """Merged, the citation would be about a text that the model wrote from no source."""
    texts: list[dict[str, Any]] = [
        {"type": "text", "text": "Let me think. "},
        {"type": "text", "text": "There are 3.", "citations": [CITED]},
        {"type": "text", "text": "\n\n"},
        {"type": "text", "text": "Anything else?"},
    ]
    head = {**claude(), "stop_reason": None}
    chunks: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(texts):
        chunks += [
            {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": block["text"][:4]}},
            {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": block["text"][4:]}},
            *[
                {"type": "content_block_delta", "index": index, "delta": {"type": "citations_delta", "citation": one}}
                for one in block.get("citations", ())
            ],
            {"type": "content_block_stop", "index": index},
        ]
    chunks += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    async with Engine([look]) as engine:
        whole = {**head, "content": texts, "stop_reason": "end_turn"}
        reply = await (engine.respond(whole) if way == "respond" else engine.watch(chunks).reply())
    (message,) = reply.messages
    assert message["content"] == [texts[0], texts[1] | {"text": "There are 3.\n\n"}, texts[3]]
    assert reply.text == "Let me think. There are 3.\n\nAnything else?"


async def test_a_pdf_that_a_tool_returns_as_anthropics_block_comes_back_as_a_document() -> None:
    """Tools that were written for the SDK return its blocks; a model reads no Base64."""
    block = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJSVFT0Y="}}

    @tool(effect="none")
    def invoice() -> list[dict[str, Any]]:
        """Return an invoice."""
        return [{"type": "text", "text": "The invoice:"}, block]

    async with Engine([invoice]) as engine:
        reply = await engine.respond(claude(("invoice", {})))
    (result,) = reply.results[0]["content"]
    assert result["content"] == [{"type": "text", "text": "The invoice:"}, block]


@pytest.mark.parametrize("declared", ["image/jpeg", "image/jpg"])
@pytest.mark.parametrize("is_block", [False, True])
async def test_an_image_is_sent_with_the_type_of_its_bytes(declared: str, is_block: bool) -> None:
    """The API refuses the request, and all that follow, if another type is declared."""
    data = "iVBORw0KGgo="  # the first bytes of a PNG
    block: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": declared, "data": data}}

    @tool(effect="none")
    def chart() -> list[Any]:
        """Draw a chart."""
        return [block] if is_block else [Image(data=data, mime_type=declared)]

    async with Engine([chart]) as engine:
        reply = await engine.respond(claude(("chart", {})))
        (answer,) = reply.outcomes
    (sent,) = reply.results[0]["content"][0]["content"]
    assert sent == block | {"source": block["source"] | {"media_type": "image/png"}}
    assert isinstance(answer, Answered)
    assert f"an image declared as {declared} was read as image/png" in [note.text for note in answer.result.metadata.notes]


async def test_beside_the_result_of_a_call_that_the_models_code_made_is_no_other_block() -> None:
    """The API refuses a picture of a failed result there, as any block but results, and the conversation could not go on."""

    @tool(effect="none")
    def chart() -> dict[str, Any]:
        """Draw a chart."""
        return {"success": False, "error": "too many lines", "data": Image(data="iVBORw0KGgo=", mime_type="image/png")}

    message = claude(("chart", {}), message_id="msg_2")
    message["content"][0]["caller"] = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    async with Engine([chart]) as engine:
        direct = await engine.respond(claude(("chart", {})))
        made_by_code = await engine.respond(message)
    assert [block["type"] for block in direct.results[0]["content"]] == ["tool_result", "text", "image"]
    assert [block["type"] for block in made_by_code.results[0]["content"]] == ["tool_result"]


async def test_what_the_sdk_of_openai_dumps_as_null_is_not_sent_back() -> None:
    """A host stores `response.model_dump()` to hand it in after a restart; the API refuses the nulls that this adds."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "lamps"}}
    mcp = {"type": "mcp_call", "id": "mcp_1", "server_label": "shop", "name": "stock", "arguments": "{}", "output": "3"}
    code = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": None, "container_id": "c1", "outputs": None}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}", "status": "completed"}
    fields = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "created_at": 1, "model": "gpt-5", "object": "response"}
    received = Response.model_validate({**fields, "id": "resp_1", "status": "completed", "output": [search, mcp, code, call]})
    async with Engine([look]) as engine:
        reply = await engine.respond(received.model_dump(mode="json"))
    assert reply.messages[:3] == [search, mcp, code]


PDF = b"%PDF-1.4\n%%EOF"


@tool(effect="none")
def invoice(order: str) -> list[object]:
    """Return the invoice of an order, and its terms."""
    return [Resource.from_bytes(PDF, mime_type="application/pdf"), Resource.from_bytes(PDF, mime_type="application/pdf")]


async def test_no_two_documents_of_a_conversation_with_bedrock_have_one_name() -> None:
    """Bedrock refuses the request, and all that follow, also if the two came in different turns."""
    names: list[str] = []
    async with Engine([invoice]) as engine:
        for turn in ("1", "2"):
            uses = [{"toolUse": {"toolUseId": f"t{turn}{number}", "name": "invoice", "input": {"order": "A7"}}} for number in (1, 2)]
            output = {"message": {"role": "assistant", "content": uses}}
            metadata = {"ResponseMetadata": {"RequestId": f"r{turn}"}}
            reply = await engine.respond({**metadata, "output": output, "stopReason": "tool_use"})
            again = await engine.respond({**metadata, "output": output, "stopReason": "tool_use"})
            assert reply.messages == again.messages
            names += [part["document"]["name"] for block in reply.results[0]["content"] for part in block["toolResult"]["content"]]
    assert len(names) == len(set(names)) == 8
    assert all(re.fullmatch(r"[A-Za-z0-9()\[\]-]+", name) for name in names)
