"""Recorded answers of real providers, decoded as a whole, in random pieces and byte by byte; recorded results, encoded."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from callgate.models.wire import known_apis
from tests.corpus.adapter import parse_response, tool_message
from tests.corpus.input_files import rows, same


def episodes() -> list[Any]:
    return [case for api in known_apis() for case in rows(f"traffic/{api}.jsonl")]


def answers(episode: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    for exchange in episode["exchanges"]:
        if exchange["api"] in known_apis() and not exchange.get("unreadable") and 200 <= (exchange["status"] or 0) < 300:
            body = base64.b64decode(exchange["body_b64"]) if "body_b64" in exchange else exchange["body"].encode("utf-8", "surrogatepass")
            yield exchange, body


def ways(body: bytes, *, streamed: bool) -> Iterator[list[bytes]]:
    """Yield the body as a whole, and that of a stream also in pieces."""
    yield [body]
    if streamed:
        sizes = random.Random(3)
        pieces, at = [], 0
        while at < len(body):
            size = sizes.randint(1, 40)
            pieces.append(body[at : at + size])
            at += size
        yield pieces
        if len(body) < 4000:
            yield [body[at : at + 1] for at in range(len(body))]


def is_right(got: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if got["name"] != wanted["name"] or (wanted["id"] and got["id"] != wanted["id"]):
        return False
    sent = wanted["arguments"]
    if wanted["kind"] == "custom":
        return sent in (got["raw"], got["arguments"])
    if wanted["args_json"]:
        value = json.loads(sent) if isinstance(sent, str) and sent.strip() else {} if isinstance(sent, str) else sent or {}
        return got["error"] is None and same(got["arguments"], value)
    if isinstance(sent, str) and sent.strip() == "null":
        return got["arguments"] in (None, {})
    return got["arguments"] is None and bool(got["error"])


@pytest.mark.parametrize("episode", episodes())
def test_calls_are_decoded_as_recorded(episode: dict[str, Any]) -> None:
    """Calls match by id, name and arguments, in order; tools that the provider ran make no calls; truncated arguments are an error."""
    for exchange, body in answers(episode):
        wanted = [call for call in exchange["calls"] if call["kind"] != "native"]
        for pieces in ways(body, streamed=exchange["streamed"]):
            told = parse_response(exchange["api"], exchange["streamed"], exchange["content_type"], pieces)
            got = [call for call in told["calls"] if not call["native"]]
            assert len(got) == len(wanted)
            assert all(is_right(one, other) for one, other in zip(got, wanted, strict=True))


def answered_call(api: str, item: dict[str, Any]) -> tuple[object, object]:
    """Return the id (or name) and the text of a result, in the format of the API."""
    match api:
        case "bedrock.converse":
            fields, key, content = item["toolResult"], "toolUseId", item["toolResult"]["content"]
        case "anthropic.messages" | "bedrock.invoke":
            fields, key, content = item, "tool_use_id", item["content"]
        case "openai.responses":
            fields, key, content = item, "call_id", item["output"]
        case _:
            fields, key, content = item, "tool_call_id", item.get("content")
    return fields.get(key), content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@pytest.mark.parametrize("episode", episodes())
def test_results_are_encoded_for_the_recorded_call(episode: dict[str, Any]) -> None:
    for exchange, _ in answers(episode):
        if exchange["api"].startswith("gemini.") or exchange["api"] not in known_apis():
            continue  # Gemini matches results by name, or has them as steps
        for call in exchange["calls"]:
            result = exchange["results"].get(call["id"] or "")
            if call["kind"] == "function" and isinstance(result, str):
                item: Any = tool_message(exchange["api"], call, result)
                assert answered_call(exchange["api"], item) == (call["id"], result)


def test_calls_are_decoded_in_the_order_in_which_the_model_wrote_them() -> None:
    """The first call has no arguments, so only the end of the message completes it; the second is complete at its last brace."""
    calls = [
        {"index": index, "id": call_id, "function": {"name": "f", "arguments": arguments}}
        for index, (call_id, arguments) in enumerate((("a", "{}"), ("b", '{"x": 1}')))
    ]
    body = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})
    told = parse_response("openai.chat", True, "text/event-stream", [f"data: {body}\n\n".encode()])
    assert [call["id"] for call in told["calls"]] == ["a", "b"]
