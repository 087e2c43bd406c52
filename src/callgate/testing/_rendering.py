"""Write scripted turns in providers' formats, in pieces or as one body.

The reverse of the decoders, written independently, so that neither hides the other's mistakes. Knows no sockets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from callgate.models.model_events import Usage
from callgate.testing.model_script import Beat, Call, End, Fail, Item, Thought

__all__ = ["CONTENT_TYPES", "render_refusal", "render_stream", "whole"]

CONTENT_TYPES: Mapping[str, str] = {
    "openai.chat": "text/event-stream",
    "openai.responses": "text/event-stream",
    "anthropic.messages": "text/event-stream",
    "ollama.chat": "application/x-ndjson",
}
"""The supported APIs, with the content types of their streams."""

_KEEP_ALIVE: Mapping[str, bytes] = {
    "openai.chat": b": keep-alive\n\n",
    "openai.responses": b": keep-alive\n\n",
    "anthropic.messages": b'event: ping\ndata: {"type":"ping"}\n\n',
}
_CHAT_ENDS: Mapping[str, str] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}
_RESPONSES_ENDS: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reasons of incomplete responses. With any other reason, a response is complete."""
_ANTHROPIC_ENDS: Mapping[str, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "pause": "pause_turn",
}


def render_stream(api: str, items: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    """Yield the pieces of a streamed answer, one per write. Items that are not content are yielded unchanged.

    Args:
        number: The number of the answer, for its id.
    """
    yield from _STREAMS[api](items, model, number)


def whole(api: str, items: Iterable[Item], model: str, number: int) -> bytes:
    """Return the answer as one body."""
    return json.dumps(_BODIES[api]([*items], model, number)).encode()


def render_refusal(api: str, fail: Fail) -> bytes:
    """Return an error as the body of an error response."""
    if api == "ollama.chat":
        return json.dumps({"error": fail.message}).encode()
    error = {"type": fail.code, "code": fail.code, "message": fail.message}
    return json.dumps({"type": "error", "error": error}).encode()


def _reason(items: Iterable[Item], ends: Mapping[str, str]) -> str | None:
    """Return the provider's finish reason for these items. None if the turn breaks off after them."""
    given = [item.reason for item in items if isinstance(item, End)]
    reason = given[0] if given else "tool_calls" if any(isinstance(item, Call) for item in items) else "stop"
    return None if reason == "cut" else ends.get(reason, reason)


def _tokens(items: Iterable[Item]) -> Usage | None:
    return next((item for item in items if isinstance(item, Usage)), None)


# Chat completions


def _chat_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items = [*given]
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}
    calls = 0

    def chunk(delta: Mapping[str, object], finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for item in items:
        if isinstance(item, str):
            yield chunk({"content": item})
        elif isinstance(item, Thought):
            yield chunk({"reasoning_content": item.text})
        elif isinstance(item, Call):
            yield chunk({"tool_calls": [{"index": calls, **_chat_call(item, "")}]})
            for delta in item.deltas:
                yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": delta}}]})
            calls += 1
        elif isinstance(item, Fail):
            yield _event({"error": {"code": item.code, "message": item.message}})
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, Usage):
            yield _KEEP_ALIVE["openai.chat"] if isinstance(item, Beat) else item
    reason = _reason(items, _CHAT_ENDS)
    if reason is None:
        return
    yield chunk({}, reason)
    usage = _tokens(items)
    if usage is not None:
        yield _event({**head, "choices": [], "usage": _chat_usage(usage)})
    yield b"data: [DONE]\n\n"


def _chat_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    calls = [_chat_call(item, item.text) for item in items if isinstance(item, Call)]
    message: dict[str, object] = {"role": "assistant", "content": "".join(item for item in items if isinstance(item, str)) or None}
    if calls:
        message["tool_calls"] = calls
    thought = "".join(item.text for item in items if isinstance(item, Thought))
    if thought:
        message["reasoning_content"] = thought
    body: dict[str, object] = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_700_000_000, "model": model}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": _reason(items, _CHAT_ENDS)}]
    usage = _tokens(items)
    return body if usage is None else {**body, "usage": _chat_usage(usage)}


def _chat_call(call: Call, arguments: str) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chat_usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


# Responses


def _responses_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items, output, sent = [*given], list[dict[str, object]](), count()

    def event(kind: str, **fields: object) -> bytes:
        return _named_event({"type": kind, "sequence_number": next(sent), **fields})

    begun = _response([], model, number)
    yield event("response.created", response=begun)
    for item in items:
        if isinstance(item, (str, Thought, Call)):
            one = _output_item(item, number, len(output))
            at: dict[str, object] = {"item_id": one["id"], "output_index": len(output)}
            yield event("response.output_item.added", output_index=len(output), item=_output_item(item, number, len(output), begins=True))
            for kind, fields in _output_pieces(item):
                yield event(f"response.{kind}", **at, **fields)
            yield event("response.output_item.done", output_index=len(output), item=one)
            output.append(one)
        elif isinstance(item, Fail):
            yield event("error", code=item.code, message=item.message, param=None)
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, Usage):
            yield _KEEP_ALIVE["openai.responses"] if isinstance(item, Beat) else item
    if _reason(items, {}) is not None:
        body = _responses_body(items, model, number)
        yield event(f"response.{body['status']}", response=body)


def _responses_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    said = [item for item in items if isinstance(item, (str, Thought, Call))]
    body = _response([_output_item(item, number, place) for place, item in enumerate(said)], model, number)
    usage = _tokens(items)
    if usage is not None:
        body["usage"] = _responses_usage(usage)
    incomplete = _RESPONSES_ENDS.get(_reason(items, {}) or "cut")
    return {**body, "status": "incomplete", "incomplete_details": {"reason": incomplete}} if incomplete else {**body, "status": "completed"}


def _response(output: list[dict[str, object]], model: str, number: int) -> dict[str, object]:
    head = {"id": f"resp_{number}", "object": "response", "created_at": 1_700_000_000, "model": model, "status": "in_progress"}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**head, **settings, "error": None, "incomplete_details": None, "output": output, "usage": None}


def _output_item(item: str | Thought | Call, number: int, place: int, *, begins: bool = False) -> dict[str, object]:
    """Return an item of the output: whole, or as it begins."""
    status = "in_progress" if begins else "completed"
    if isinstance(item, Call):
        call = {"call_id": item.id, "name": item.name, "arguments": "" if begins else item.text}
        return {"type": "function_call", "id": f"fc_{number}_{place}", "status": status, **call}
    if isinstance(item, Thought):
        summary = [] if begins else [{"type": "summary_text", "text": item.text}]
        return {"type": "reasoning", "id": f"rs_{number}_{place}", "summary": summary}
    content = [] if begins else [{"type": "output_text", "text": item, "annotations": []}]
    return {"type": "message", "id": f"msg_{number}_{place}", "role": "assistant", "status": status, "content": content}


def _output_pieces(item: str | Thought | Call) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the kind and the own fields of each event between the begin and the end of an item."""
    if isinstance(item, Call):
        for delta in item.deltas:
            yield "function_call_arguments.delta", {"delta": delta}
        yield "function_call_arguments.done", {"name": item.name, "arguments": item.text}
        return
    part: dict[str, object]
    if isinstance(item, Thought):
        kind, text, at, part = "reasoning_summary", item.text, {"summary_index": 0}, {"type": "summary_text"}
        parts = f"{kind}_part"
    else:
        kind, text, at, part = "output", item, {"content_index": 0}, {"type": "output_text", "annotations": []}
        parts = "content_part"
    yield f"{parts}.added", {**at, "part": {**part, "text": ""}}
    yield f"{kind}_text.delta", {**at, "delta": text}
    yield f"{kind}_text.done", {**at, "text": text}
    yield f"{parts}.done", {**at, "part": {**part, "text": text}}


def _responses_usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


# Messages


def _anthropic_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items = [*given]
    head: dict[str, object] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
    }
    blocks = 0
    yield _named_event({"type": "message_start", "message": {**head, "usage": {"input_tokens": 0, "output_tokens": 0}}})
    for item in items:
        if isinstance(item, (str, Thought, Call)):
            yield from _anthropic_block(blocks, item)
            blocks += 1
        elif isinstance(item, Fail):
            yield _named_event({"type": "error", "error": {"type": item.code, "message": item.message}})
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, Usage):
            yield _KEEP_ALIVE["anthropic.messages"] if isinstance(item, Beat) else item
    reason = _reason(items, _ANTHROPIC_ENDS)
    if reason is None:
        return
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield _named_event({"type": "message_delta", "delta": delta, "usage": _anthropic_usage(_tokens(items) or Usage())})
    yield _named_event({"type": "message_stop"})


def _anthropic_block(index: int, item: str | Thought | Call) -> Iterator[bytes]:
    block, deltas = _anthropic_parts(item)
    yield _named_event({"type": "content_block_start", "index": index, "content_block": block})
    for delta in deltas:
        yield _named_event({"type": "content_block_delta", "index": index, "delta": delta})
    yield _named_event({"type": "content_block_stop", "index": index})


def _anthropic_parts(item: str | Thought | Call) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the start event of a block and its deltas."""
    if isinstance(item, str):
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": item}]
    if isinstance(item, Thought):
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": item.text},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ]
    pieces: list[dict[str, object]] = [{"type": "input_json_delta", "partial_json": delta} for delta in item.deltas]
    return {"type": "tool_use", "id": item.id, "name": item.name, "input": {}}, pieces


def _anthropic_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    content: list[dict[str, object]] = []
    for item in items:
        if isinstance(item, str):
            content.append({"type": "text", "text": item})
        elif isinstance(item, Thought):
            content.append({"type": "thinking", "thinking": item.text, "signature": "c2lnbmVk"})
        elif isinstance(item, Call):
            content.append({"type": "tool_use", "id": item.id, "name": item.name, "input": json.loads(item.text)})
    body: dict[str, object] = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": content}
    return {**body, "stop_reason": _reason(items, _ANTHROPIC_ENDS), "usage": _anthropic_usage(_tokens(items) or Usage())}


def _anthropic_usage(usage: Usage) -> dict[str, object]:
    fresh = usage.input_tokens - usage.cached_tokens
    return {"input_tokens": fresh, "cache_read_input_tokens": usage.cached_tokens, "output_tokens": usage.output_tokens}


# Ollama


def _ollama_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items = [*given]
    for item in items:
        if isinstance(item, (str, Thought, Call)):
            yield _line({"model": model, "created_at": _creation_time(number), "message": _ollama_message([item]), "done": False})
        elif isinstance(item, Fail):
            yield _line({"error": item.message})
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, (Usage, Beat)):
            yield item
    if _reason(items, {}) is not None:
        yield _line(_ollama_body([item for item in items if not isinstance(item, (str, Thought, Call))], model, number))


def _ollama_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    usage = _tokens(items) or Usage()
    reason = "length" if _reason(items, {}) == "length" else "stop"
    counts = {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
    head = {"model": model, "created_at": _creation_time(number)}
    return {**head, "message": _ollama_message(items), "done": True, "done_reason": reason, **counts}


def _creation_time(number: int) -> str:
    """Return the time of an answer, which is all that identifies it in this API."""
    return f"2026-01-01T00:00:00.{number:09}Z"


def _ollama_message(items: Iterable[Item]) -> dict[str, object]:
    items = [*items]
    message: dict[str, object] = {"role": "assistant", "content": "".join(item for item in items if isinstance(item, str))}
    thought = "".join(item.text for item in items if isinstance(item, Thought))
    if thought:
        message["thinking"] = thought
    calls = [{"function": {"name": item.name, "arguments": json.loads(item.text)}} for item in items if isinstance(item, Call)]
    return {**message, "tool_calls": calls} if calls else message


# Frames


def _event(value: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _named_event(value: Mapping[str, object]) -> bytes:
    return f"event: {value['type']}\n".encode() + _event(value)


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


_STREAMS: Mapping[str, Callable[..., Iterator[bytes | Item]]] = {
    "openai.chat": _chat_stream,
    "openai.responses": _responses_stream,
    "anthropic.messages": _anthropic_stream,
    "ollama.chat": _ollama_stream,
}
_BODIES: Mapping[str, Callable[..., dict[str, object]]] = {
    "openai.chat": _chat_body,
    "openai.responses": _responses_body,
    "anthropic.messages": _anthropic_body,
    "ollama.chat": _ollama_body,
}
