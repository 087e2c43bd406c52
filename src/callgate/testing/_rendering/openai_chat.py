"""Write scripted turns as chat completions of OpenAI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from callgate.models.model_events import Usage
from callgate.testing._rendering.script_items import event_frame, finish_reason_of, usage_of
from callgate.testing.model_script import Beat, Call, End, Fail, Item, Thought

__all__ = ["write_body", "write_stream"]

_KEEP_ALIVE = b": keep-alive\n\n"
_ENDS: Mapping[str, str] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}


def write_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items = [*given]
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}
    calls = 0

    def chunk(delta: Mapping[str, object], finish: str | None = None) -> bytes:
        return event_frame({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for item in items:
        if isinstance(item, str):
            yield chunk({"content": item})
        elif isinstance(item, Thought):
            yield chunk({"reasoning_content": item.text})
        elif isinstance(item, Call):
            yield chunk({"tool_calls": [{"index": calls, **_write_call(item, "")}]})
            for delta in item.deltas:
                yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": delta}}]})
            calls += 1
        elif isinstance(item, Fail):
            yield event_frame({"error": {"code": item.code, "message": item.message}})
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, Usage):
            yield _KEEP_ALIVE if isinstance(item, Beat) else item
    reason = finish_reason_of(items, _ENDS)
    if reason is None:
        return
    yield chunk({}, reason)
    usage = usage_of(items)
    if usage is not None:
        yield event_frame({**head, "choices": [], "usage": _write_usage(usage)})
    yield b"data: [DONE]\n\n"


def write_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    calls = [_write_call(item, item.text) for item in items if isinstance(item, Call)]
    message: dict[str, object] = {"role": "assistant", "content": "".join(item for item in items if isinstance(item, str)) or None}
    if calls:
        message["tool_calls"] = calls
    thought = "".join(item.text for item in items if isinstance(item, Thought))
    if thought:
        message["reasoning_content"] = thought
    body: dict[str, object] = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_700_000_000, "model": model}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": finish_reason_of(items, _ENDS)}]
    usage = usage_of(items)
    return body if usage is None else {**body, "usage": _write_usage(usage)}


def _write_call(call: Call, arguments: str) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _write_usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
