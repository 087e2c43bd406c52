"""callgate's answers in the formats of the corpora. Calls the public checks and decides nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callgate._schema import compile_schema
from callgate.argument_checks import check_arguments, parse_arguments, repair_json, resolve_name
from callgate.calls import Text
from callgate.errors import ArgumentsInvalid, ArgumentsMalformed, ArgumentsTruncated
from callgate.messages import Native, ToolMessage
from callgate.models.dialects import read_text
from callgate.models.model_events import CallSealed, Finished
from callgate.models.wire import codec
from callgate.models.wire.tool_names import WireNames

__all__ = ["check_args", "is_valid", "parse_response", "parse_text", "repair", "resolve", "tool_message"]

DIALECTS = {
    "draft4": "http://json-schema.org/draft-04/schema",
    "draft6": "http://json-schema.org/draft-06/schema",
    "draft7": "http://json-schema.org/draft-07/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def check_args(schema: Mapping[str, Any], arguments: dict[str, object], coerce: bool) -> dict[str, Any]:
    try:
        found = check_arguments(schema, arguments, coerce=coerce)
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        return {"ok": False, "arguments": arguments, "errors": [str(error)]}
    return {"ok": found.valid, "arguments": found.arguments, "errors": [error.message for error in found.errors]}


def is_valid(schema: Mapping[str, Any] | bool, data: object, draft: str, remotes: Mapping[str, Any]) -> bool:
    whole = schema if isinstance(schema, Mapping) else {} if schema else {"not": {}}
    return compile_schema(whole, "the schema", any_root=True, dialect=DIALECTS[draft], resources=remotes).is_valid(data)


def repair(text: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return {"ok": True, "value": repair_json(text, schema).value}
    except (ArgumentsInvalid, ArgumentsMalformed, ArgumentsTruncated):
        return {"ok": False, "value": None}


def resolve(name: str, names: Iterable[str]) -> str | None:
    return resolve_name(name, names).name


def parse_response(api: str, streamed: bool, content_type: str | None, chunks: Iterable[bytes]) -> dict[str, Any]:
    decoder = codec(api).decoder(content_type=content_type or "", streamed=streamed)
    events = [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()
    sealed = {event.position: event for event in events if isinstance(event, CallSealed)}
    finished = events[-1]
    assert isinstance(finished, Finished)
    native = [{"id": part.id, "name": part.kind, "native": True} for part in finished.message.parts if isinstance(part, Native)]
    return {
        "calls": [*native, *(_judged(sealed[position]) for position in sorted(sealed))],
        "text": finished.message.text,
        "finish": finished.said,
    }


def _judged(event: CallSealed) -> dict[str, Any]:
    call = event.call
    told: dict[str, Any] = {"id": call.id, "name": call.name, "raw": call.arguments, "native": False, "arguments": None, "error": None}
    if call.custom:
        return told
    if not call.name.strip() or event.closed == "cut":
        return told | {"error": "the message ended before the call was complete"}
    try:
        return told | {"arguments": parse_arguments(call.arguments)}
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        return told | {"error": str(error)}


def tool_message(api: str, call: Mapping[str, Any], content: str) -> dict[str, object]:
    result = ToolMessage(call_id=call["id"], name=call["name"], content=(Text(text=content),))
    return codec(api).encode_result(result, WireNames())


def parse_text(text: str, tools: list[dict[str, Any]], hint: str | None, partial: bool) -> dict[str, Any]:
    reading = read_text(text, {tool["name"]: tool.get("schema") for tool in tools}, dialect=hint, partial=partial)
    calls = [{"name": call.name, "arguments": _arguments(call.arguments)} for call in reading.calls]
    return {"calls": calls, "content": reading.content}


def _arguments(text: str) -> object:
    """Return the arguments as the parse stage reads them, with repair."""
    try:
        return parse_arguments(text)
    except (ArgumentsMalformed, ArgumentsTruncated):
        return repair(text, None)["value"]
