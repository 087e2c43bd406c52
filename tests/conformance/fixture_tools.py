"""The tools that the server scenarios of the conformance suite call, by name."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types

from tests.conformance.fixture_questions import Answers, Asking, Context, Question, elicitation, roots, sampling

__all__ = ["PIXEL", "TOOLS", "FixtureTool", "Run"]

Run = Callable[[Context, types.CallToolRequestParams], Awaitable[dict[str, Any]]]

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
"""A PNG of one pixel in Base64."""
_SILENCE: Final = base64.b64encode(
    b"RIFF"
    + (38).to_bytes(4, "little")
    + b"WAVEfmt "
    + (16).to_bytes(4, "little")
    + b"\1\0\1\0"
    + (8000).to_bytes(4, "little")
    + (16000).to_bytes(4, "little")
    + b"\2\0\x10\0"
    + b"data"
    + (2).to_bytes(4, "little")
    + b"\0\0"
).decode()
"""A WAV of one sample in Base64."""
_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_IMAGE: Final = {"type": "image", "data": PIXEL, "mimeType": "image/png"}


@dataclass(frozen=True, kw_only=True)
class FixtureTool:
    """A tool: what is listed, and what a call does."""

    description: str
    run: Run
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def embedded(uri: str, mime: str, said: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": said}}


def always(result: dict[str, Any]) -> Run:
    async def run(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        return result

    return run


async def log(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    """Log three times, if the era or the client wants that. The scenarios watch for messages that arrive one by one."""
    for step in ("started", "processing data", "completed"):
        if context.protocol_version < "2026-07-28" or _LOG_LEVEL in (context.meta or {}):
            told = types.LoggingMessageNotificationParams(level="info", data=f"Tool execution {step}")
            await context.session.send_notification(types.LoggingMessageNotification(params=told), related_request_id=context.request_id)
        await asyncio.sleep(0.05)
    return text("Logged three times.")


async def progress(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return text("Reported progress three times.")


async def reconnect(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    """End the stream of this call before its answer, if the era has streams that can be continued."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    return text("Continued on another stream.")


async def sampled(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    asking = Asking(rounds=({"reply": sampling(params.arguments["prompt"])},), result=_told("LLM response", "reply"))  # type: ignore[index]
    return await asking(context, params)


async def elicited(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    fields = {name: {"type": "string", "description": f"The user's {name}"} for name in ("username", "email")}
    question = elicitation(params.arguments["message"], fields)  # type: ignore[index]
    return await Asking(rounds=({"user": question},), result=_told("User response", "user"))(context, params)


def _told(label: str, key: str) -> Callable[[Answers], dict[str, Any]]:
    return lambda answers: text(f"{label}: {json.dumps(answers[key])}")


def _asking(result: str, *rounds: Mapping[str, Question], keeps_state: bool = False, optional: bool = False) -> FixtureTool:
    asking = Asking(
        rounds=rounds, result=lambda answers: text(f"{result}: {json.dumps(answers)}"), keeps_state=keeps_state, optional=optional
    )
    return FixtureTool(description=f"Ask the client in {len(rounds)} round(s).", run=asking)


def _texts(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def _titled(noun: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": f"{ordinal} {noun}"} for number, ordinal in enumerate(("First", "Second", "Third"), 1)]


_NAME: Final = elicitation("What is your name?", {"name": {"type": "string"}})
_CONFIRM: Final = elicitation("Please confirm", {"ok": {"type": "boolean"}})
_DEFAULTS: Final = elicitation(
    "Please review these values",
    {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    required=(),
)
_OPTIONS: Final = ["option1", "option2", "option3"]
_ENUMS: Final = elicitation(
    "Please choose",
    {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _titled("Option")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _titled("Choice")}},
    },
    required=(),
)
_SCHEMA_2020: Final[Mapping[str, Any]] = {
    "$schema": _DIALECT,
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_REGION: Final = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}, "required": ["region"]}


def _fixed(description: str, *content: Mapping[str, Any], **more: Any) -> FixtureTool:
    return FixtureTool(description=description, run=always({"content": list(content), **more}))


TOOLS: Final[Mapping[str, FixtureTool]] = {
    "test_simple_text": _fixed("Return a text.", {"type": "text", "text": "This is a simple text response for testing."}),
    "test_image_content": _fixed("Return an image.", _IMAGE),
    "test_audio_content": _fixed("Return audio.", {"type": "audio", "data": _SILENCE, "mimeType": "audio/wav"}),
    "test_embedded_resource": _fixed("Return a resource.", embedded("test://embedded-resource", "text/plain", "An embedded resource.")),
    "test_multiple_content_types": _fixed(
        "Return a text, an image and a resource.",
        {"type": "text", "text": "Multiple content types:"},
        _IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": _fixed("Fail.", {"type": "text", "text": "This tool always fails."}, isError=True),
    "test_tool_with_logging": FixtureTool(description="Log.", run=log),
    "test_logging_tool": FixtureTool(description="Log.", run=log),
    "test_tool_with_progress": FixtureTool(description="Report progress.", run=progress),
    "test_reconnection": FixtureTool(description="End the stream before the answer.", run=reconnect),
    "test_sampling": FixtureTool(description="Ask a language model.", run=sampled, schema=_texts("prompt")),
    "test_elicitation": FixtureTool(description="Ask the user.", run=elicited, schema=_texts("message")),
    "test_elicitation_sep1034_defaults": _asking("Elicitation completed", {"values": _DEFAULTS}),
    "test_elicitation_sep1330_enums": _asking("Elicitation completed", {"choices": _ENUMS}),
    "test_streaming_elicitation": _asking("Elicitation completed", {"user_name": _NAME}),
    "test_missing_capability": _asking("Sampling completed", {"reply": sampling("Say something.")}),
    "test_x_mcp_header": FixtureTool(description="Take an argument that is a header too.", run=always(text("Taken.")), schema=_REGION),
    "json_schema_2020_12_tool": FixtureTool(description="Have a rich schema.", run=always(text("Accepted.")), schema=_SCHEMA_2020),
    "test_input_required_result_elicitation": _asking("Hello", {"user_name": _NAME}),
    "test_input_required_result_sampling": _asking("Answer", {"capital_question": sampling("What is the capital of France?")}),
    "test_input_required_result_list_roots": _asking("Roots", {"client_roots": roots()}),
    "test_input_required_result_request_state": _asking("state-ok", {"confirm": _CONFIRM}, keeps_state=True),
    "test_input_required_result_tampered_state": _asking("state-ok", {"confirm": _CONFIRM}, keeps_state=True),
    "test_input_required_result_multiple_inputs": _asking(
        "Answers",
        {"user_name": _NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": roots()},
        keeps_state=True,
    ),
    "test_input_required_result_multi_round": _asking(
        "Answers",
        {"step1": elicitation("Step 1: What is your name?", {"name": {"type": "string"}})},
        {"step2": elicitation("Step 2: What is your favorite color?", {"color": {"type": "string"}})},
        keeps_state=True,
    ),
    "test_input_required_result_capabilities": _asking(
        "Answers", {"user_name": _NAME, "greeting": sampling("Generate a greeting")}, optional=True
    ),
}
