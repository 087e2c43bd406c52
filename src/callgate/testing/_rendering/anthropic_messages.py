"""Write scripted turns as messages of Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from callgate.models.model_events import Usage
from callgate.testing._rendering.script_items import finish_reason_of, named_event_frame, usage_of
from callgate.testing.model_script import Beat, Call, End, Fail, Item, Thought

__all__ = ["write_body", "write_stream"]

_KEEP_ALIVE = b'event: ping\ndata: {"type":"ping"}\n\n'
_ENDS: Mapping[str, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "pause": "pause_turn",
}


def write_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
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
    yield named_event_frame({"type": "message_start", "message": {**head, "usage": {"input_tokens": 0, "output_tokens": 0}}})
    for item in items:
        if isinstance(item, (str, Thought, Call)):
            yield from _write_block(blocks, item)
            blocks += 1
        elif isinstance(item, Fail):
            yield named_event_frame({"type": "error", "error": {"type": item.code, "message": item.message}})
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, Usage):
            yield _KEEP_ALIVE if isinstance(item, Beat) else item
    reason = finish_reason_of(items, _ENDS)
    if reason is None:
        return
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield named_event_frame({"type": "message_delta", "delta": delta, "usage": _write_usage(usage_of(items) or Usage())})
    yield named_event_frame({"type": "message_stop"})


def _write_block(index: int, item: str | Thought | Call) -> Iterator[bytes]:
    block, deltas = _block_parts(item)
    yield named_event_frame({"type": "content_block_start", "index": index, "content_block": block})
    for delta in deltas:
        yield named_event_frame({"type": "content_block_delta", "index": index, "delta": delta})
    yield named_event_frame({"type": "content_block_stop", "index": index})


def _block_parts(item: str | Thought | Call) -> tuple[dict[str, object], list[dict[str, object]]]:
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


def write_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    content: list[dict[str, object]] = []
    for item in items:
        if isinstance(item, str):
            content.append({"type": "text", "text": item})
        elif isinstance(item, Thought):
            content.append({"type": "thinking", "thinking": item.text, "signature": "c2lnbmVk"})
        elif isinstance(item, Call):
            content.append({"type": "tool_use", "id": item.id, "name": item.name, "input": json.loads(item.text)})
    body: dict[str, object] = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": content}
    return {**body, "stop_reason": finish_reason_of(items, _ENDS), "usage": _write_usage(usage_of(items) or Usage())}


def _write_usage(usage: Usage) -> dict[str, object]:
    fresh = usage.input_tokens - usage.cached_tokens
    return {"input_tokens": fresh, "cache_read_input_tokens": usage.cached_tokens, "output_tokens": usage.output_tokens}
