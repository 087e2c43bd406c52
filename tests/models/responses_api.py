"""Parts of OpenAI responses: items, their events, and a typical answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = [
    "API",
    "FREE",
    "ONE",
    "OUTPUT",
    "SAID",
    "SEARCH",
    "THOUGHT",
    "TWO",
    "USUAL",
    "added",
    "done",
    "event",
    "function",
    "message",
    "over",
    "piece",
    "response",
]

API = "openai.responses"


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def added(index: object, **item: object) -> bytes:
    return event("response.output_item.added", output_index=index, item={"status": "in_progress", **item})


def done(index: object, **item: object) -> bytes:
    return event("response.output_item.done", output_index=index, item={"status": "completed", **item})


def piece(index: object, item_id: object, text: str) -> bytes:
    return event("response.function_call_arguments.delta", output_index=index, item_id=item_id, delta=text)


def function(call_id: str, name: str, arguments: str = "", **more: object) -> dict[str, object]:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments, **more}


def message(text: str, **more: object) -> dict[str, object]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def response(*output: Mapping[str, object], status: str = "completed", **more: object) -> dict[str, object]:
    usage = {
        "input_tokens": 9,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    return {"object": "response", "model": "m", "status": status, "output": output, "usage": usage, **more}


def over(*output: Mapping[str, object], status: str = "completed", **more: object) -> bytes:
    return event(f"response.{status}", response=response(*output, status=status, **more))


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "enc"}
SAID = message("Let me lóok.", phase="commentary")
ONE = function("a", "search", '{"q": "books}{"}')
TWO = function("b", "now", "{}")
FREE = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "py", "input": "print(1)}"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
OUTPUT = (THOUGHT, SEARCH, SAID, ONE, TWO, FREE)
USUAL = (
    event("response.created", response={"model": "m", "output": [], "status": "in_progress"})
    + added(0, type="reasoning", id="rs_1", summary=[])
    + event("response.reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta="Hm.")
    + event("response.reasoning_summary_text.done", item_id="rs_1", output_index=0, summary_index=0, text="Hm.")
    + done(0, **THOUGHT)
    + added(1, type="web_search_call", id="ws_1")
    + event("response.web_search_call.searching", item_id="ws_1", output_index=1)
    + done(1, **SEARCH)
    + event("keepalive")
    + added(2, type="message", id="msg_1", content=[], phase="commentary")
    + event(
        "response.content_part.added",
        item_id="msg_1",
        output_index=2,
        content_index=0,
        part={"type": "output_text", "text": "", "annotations": []},
    )
    + event("response.output_text.delta", item_id="msg_1", output_index=2, content_index=0, delta="Let me ")
    + event("response.output_text.delta", item_id="msg_1", output_index=2, content_index=0, delta="lóok.")
    + event("response.output_text.done", item_id="msg_1", output_index=2, content_index=0, text="Let me lóok.")
    + done(2, **SAID)
    + added(3, **function("a", "search"))
    + piece(3, "fc_a", '{"q": "b')
    + piece(3, "fc_a", 'ooks}{"}')
    + event("response.function_call_arguments.done", item_id="fc_a", output_index=3, arguments='{"q": "books}{"}')
    + done(3, **ONE)
    + added(4, **function("b", "now"))
    + piece(4, "fc_b", "{}")
    + done(4, **TWO)
    + added(5, **{**FREE, "input": ""})
    + event("response.custom_tool_call_input.delta", item_id="ctc_1", output_index=5, delta="print(")
    + event("response.custom_tool_call_input.delta", item_id="ctc_1", output_index=5, delta="1)}")
    + event("response.custom_tool_call_input.done", item_id="ctc_1", output_index=5, input="print(1)}")
    + done(5, **FREE)
    + over(*OUTPUT)
)
