"""One conversation with every kind of part, for the encoders of all APIs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from callgate.calls import Image, Text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.model_events import ModelEvent
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from tests.models.decoding import finished

__all__ = ["PICTURE", "TALK", "TOOLS", "answered", "sent"]

PICTURE = Image(data="aGk=", mime_type="image/png")

TALK: tuple[Message, ...] = (
    SystemMessage("Be brief."),
    UserMessage("Find it."),
    AssistantMessage(
        parts=(
            Reasoning(text="Both at once.", opaque={"signature": "of another provider"}),
            ToolCall(id="a", name="find", arguments='{"q": "x"}'),
            ToolCall(id="b", name="shot", arguments=""),
        ),
        api="another",
    ),
    ToolMessage(call_id="a", name="find", content=(Text(text="3 hits"),)),
    ToolMessage(call_id="b", name="shot", content=(Text(text="no screen"), PICTURE), is_error=True),
    UserMessage("Well?"),
)
"""A system text, a message with two calls and their results, a failed call, an image in a result, and another provider's signature."""

TOOLS = (
    ToolSpec(name="find", description="Finds.", schema={"type": "object", "properties": {"q": {"type": "string"}}}),
    ToolSpec(name="shot"),
)


def sent(api: str, messages: Sequence[Message] = TALK, *, quirks: Mapping[str, object] = {}, **more: Any) -> dict[str, Any]:
    """Return the request body for a conversation."""
    settings: dict[str, Any] = {"model": "m", "tools": TOOLS, **more}
    body = json.loads(codec(api).encode(ModelRequest(messages=messages, **settings), WireNames(), quirks).body)
    assert isinstance(body, dict)
    return body


def answered(events: list[ModelEvent], content: str = "done") -> list[Message]:
    """Return the decoded message with a result for each of its calls, as the next request contains them."""
    message = finished(events).message
    results = [ToolMessage(call_id=c.id, name=c.name, content=(Text(text=content),), made_id=c.made_id) for c in message.calls]
    return [UserMessage("Go."), message, *results]
