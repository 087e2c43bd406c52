"""The prompts, resources and completions that the server scenarios of the conformance suite ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from tests.conformance.fixture_questions import Asking, Context, elicitation
from tests.conformance.fixture_tools import PIXEL

__all__ = ["PROMPTS", "RESOURCES", "TEMPLATES", "complete", "get_prompt", "read_resource"]

_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")

PROMPTS: Final = [
    {"name": "test_simple_prompt", "description": "A prompt without arguments."},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with two arguments.",
        "arguments": [{"name": name, "description": "A text.", "required": True} for name in ("arg1", "arg2")],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with a resource.",
        "arguments": [{"name": "resourceUri", "description": "The address of the resource.", "required": True}],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with an image."},
    {"name": "test_input_required_result_prompt", "description": "A prompt that asks the user."},
]

RESOURCES: Final = [
    {"uri": "test://static-text", "name": "static-text", "description": "A text.", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "static-binary", "description": "An image.", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "watched-resource", "description": "A text to subscribe to.", "mimeType": "text/plain"},
]
TEMPLATES: Final = [
    {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data by id.", "mimeType": "application/json"}
]


def read_resource(uri: str) -> dict[str, Any]:
    """Return the result of reading a resource.

    Raises:
        MCPError: There is no such resource.
    """
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
    if found := _TEMPLATE.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    if uri in (one["uri"] for one in RESOURCES):
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"The content of {uri}."}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
    """Return the result of a prompt.

    Raises:
        MCPError: There is no such prompt.
    """
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _messages(_text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return _messages(_text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"))
        case "test_prompt_with_embedded_resource":
            resource = {"uri": given.get("resourceUri", ""), "mimeType": "text/plain", "text": "Embedded resource content for testing."}
            return _messages({"type": "resource", "resource": resource}, _text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
            return _messages(image, _text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            return await _ASKING(context, params)
    raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name!r}.")


def complete() -> dict[str, Any]:
    return {"completion": {"values": ["testValue1", "testValue2"], "total": 2, "hasMore": False}}


def _text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def _messages(*content: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": one} for one in content]}


_ASKING: Final = Asking(
    rounds=({"user_context": elicitation("What context should the prompt use?", {"context": {"type": "string"}})},),
    result=lambda answers: _messages(_text(f"Use this context: {json.dumps(answers['user_context'])}")),
)
