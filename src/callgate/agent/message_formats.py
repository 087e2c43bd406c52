"""A conversation in the forms that hosts keep: OpenAI's messages, calls as JSON in text, and back.

`native` is for models with tool calls, `fallback` for those that only write text; `from_native` reads what other programs have stored.
Where a picture or a file is left out, the text says so. Pure. Requests are not made here: `callgate.models.wire` writes those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callgate._json import json_text
from callgate.calls import Image, Text
from callgate.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage, call_text, marked_result
from callgate.models.wire.history_encoding import argument_object, images, part_text
from callgate.models.wire.openai_chat.encoder import encode_messages
from callgate.models.wire.tool_names import WireNames

__all__ = ["fallback", "from_native", "native"]


def native(messages: Iterable[Message]) -> list[dict[str, object]]:
    """The conversation as OpenAI chat messages, tool names as they are."""
    return encode_messages(list(messages), _Untouched(), {})


def fallback(messages: Iterable[Message]) -> list[Message]:
    """The conversation for a model that only writes text: each call a JSON object, each result a marked message of the user.

    A message with several calls becomes as many exchanges, so that roles go on taking turns. Of a picture in a result it is said that there
    is one: such a model may take none. Sound and files in a result are named in their place as well.
    """
    told: list[Message] = []
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, AssistantMessage) and message.calls:
            waiting |= {call.id: call for call in message.calls}
            why = message.text.strip()
            first = message.calls[0].id
            reasons = {call.id: _reason(call, why if call.id == first else "") for call in message.calls}
        elif isinstance(message, ToolMessage):
            call = waiting.pop(message.call_id, None)
            if call is not None:
                told.append(AssistantMessage(parts=(Text(text=call_text(call.name, argument_object(call), reasons[call.id])),)))
            texts = [part_text(part) for part in message.content if not isinstance(part, Image)]
            told.append(UserMessage("\n".join((marked_result(message.name, texts), *_left_out(message)))))
        else:
            told.append(message)
    return told


def from_native(items: Iterable[Mapping[str, object]]) -> list[Message]:
    """OpenAI chat messages as a conversation. What has no known role is left out; repair the rest with `repair_history`."""
    messages: list[Message] = []
    made: dict[str, ToolCall] = {}
    for item in items:
        text = _content(item.get("content"))
        match item.get("role"):
            case "system" | "developer":
                messages.append(SystemMessage(text))
            case "user":
                messages.append(UserMessage(text))
            case "assistant":
                calls = _calls(item.get("tool_calls"))
                made |= {call.id: call for call in calls}
                messages.append(AssistantMessage(parts=(*((Text(text=text),) if text else ()), *calls), api="openai.chat"))
            case "tool":
                call_id = str(item.get("tool_call_id") or "")
                call = made.get(call_id, ToolCall(id=call_id, name=""))
                name = str(item.get("name") or call.name)
                messages.append(ToolMessage(call_id=call_id, name=name, content=(Text(text=text),), custom=call.custom))
    return messages


def _reason(call: ToolCall, said: str) -> str:
    """Why a call is made: what was said before it, and what it says itself."""
    return "\n".join(text for text in (said, call.reasoning or "") if text)


def _left_out(message: ToolMessage) -> list[str]:
    """What is said in the place of pictures, which a result as text cannot hold."""
    return [f"[{part_text(part).strip('[]')}: a picture, which is not shown here]" for part in images([message])]


class _Untouched(WireNames):
    """Names for readers that are no provider."""

    def to_wire(self, name: str) -> str:
        return name


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(_said(part) for part in parts if isinstance(part, dict))


def _said(part: Mapping[str, object]) -> str:
    """A stored part's text; of one that is something else, that it was there."""
    text, kind = part.get("text", part.get("refusal")), str(part.get("type") or "text")
    return text if isinstance(text, str) else "" if kind in ("text", "refusal") else f"[{kind[:40]}, which is not taken over]"


def _calls(items: object) -> list[ToolCall]:
    calls = []
    for item in items if isinstance(items, list) else ():
        function = item.get("function") if isinstance(item, dict) else None
        custom = item.get("custom") if isinstance(item, dict) else None
        if isinstance(custom, dict):
            name, text = str(custom.get("name") or ""), str(custom.get("input") or "")
            calls.append(ToolCall(id=str(item.get("id") or ""), name=name, arguments=text, custom=True))
        elif isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json_text(arguments or {})
            calls.append(ToolCall(id=str(item.get("id") or ""), name=str(function.get("name") or ""), arguments=text))
    return calls
