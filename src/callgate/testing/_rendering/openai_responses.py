"""Write scripted turns as responses of OpenAI's responses API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from callgate.models.model_events import Usage
from callgate.testing._rendering.script_items import finish_reason_of, named_event_frame, usage_of
from callgate.testing.model_script import Beat, Call, End, Fail, Item, Thought

__all__ = ["write_body", "write_stream"]

_KEEP_ALIVE = b": keep-alive\n\n"
_INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reasons of incomplete responses. With any other reason, a response is complete."""


def write_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items, output, sent = [*given], list[dict[str, object]](), count()

    def event(kind: str, **fields: object) -> bytes:
        return named_event_frame({"type": kind, "sequence_number": next(sent), **fields})

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
            yield _KEEP_ALIVE if isinstance(item, Beat) else item
    if finish_reason_of(items, {}) is not None:
        body = write_body(items, model, number)
        yield event(f"response.{body['status']}", response=body)


def write_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    said = [item for item in items if isinstance(item, (str, Thought, Call))]
    body = _response([_output_item(item, number, place) for place, item in enumerate(said)], model, number)
    usage = usage_of(items)
    if usage is not None:
        body["usage"] = _write_usage(usage)
    incomplete = _INCOMPLETE.get(finish_reason_of(items, {}) or "cut")
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


def _write_usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
