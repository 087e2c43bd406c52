"""Write scripted turns as answers of Ollama's chat API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from callgate.models.model_events import Usage
from callgate.testing._rendering.script_items import finish_reason_of, json_line, usage_of
from callgate.testing.model_script import Beat, Call, End, Fail, Item, Thought

__all__ = ["write_body", "write_stream"]


def write_stream(given: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    items = [*given]
    for item in items:
        if isinstance(item, (str, Thought, Call)):
            yield json_line({"model": model, "created_at": _creation_time(number), "message": _write_message([item]), "done": False})
        elif isinstance(item, Fail):
            yield json_line({"error": item.message})
            return
        elif isinstance(item, End):
            break
        elif not isinstance(item, (Usage, Beat)):
            yield item
    if finish_reason_of(items, {}) is not None:
        yield json_line(write_body([item for item in items if not isinstance(item, (str, Thought, Call))], model, number))


def write_body(items: list[Item], model: str, number: int) -> dict[str, object]:
    usage = usage_of(items) or Usage()
    reason = "length" if finish_reason_of(items, {}) == "length" else "stop"
    counts = {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
    head = {"model": model, "created_at": _creation_time(number)}
    return {**head, "message": _write_message(items), "done": True, "done_reason": reason, **counts}


def _creation_time(number: int) -> str:
    """Return the time of an answer, which is all that identifies it in this API."""
    return f"2026-01-01T00:00:00.{number:09}Z"


def _write_message(items: Iterable[Item]) -> dict[str, object]:
    items = [*items]
    message: dict[str, object] = {"role": "assistant", "content": "".join(item for item in items if isinstance(item, str))}
    thought = "".join(item.text for item in items if isinstance(item, Thought))
    if thought:
        message["thinking"] = thought
    calls = [{"function": {"name": item.name, "arguments": json.loads(item.text)}} for item in items if isinstance(item, Call)]
    return {**message, "tool_calls": calls} if calls else message
