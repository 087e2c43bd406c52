"""Convert a conversation between this package's messages and other formats: OpenAI's messages, and text with calls as JSON.

`native` is for models with tool calls, `fallback` for models that only write text, and `from_native` reads conversations that other
programs have stored. If a picture or a file is left out, the text says so. Pure. `callgate.models.wire` writes requests; this module does
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callgate._json import json_text
from callgate._provider_calls import chat_payload
from callgate.calls import Image, Text
from callgate.content_parts import part_text
from callgate.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage, call_text, marked_result
from callgate.models.wire.history_encoding import argument_object, images
from callgate.models.wire.openai_chat.encoder import encode_messages
from callgate.models.wire.tool_names import WireNames

__all__ = ["fallback", "from_native", "native"]


def native(messages: Iterable[Message]) -> list[dict[str, object]]:
    """Return the conversation as OpenAI chat messages, with unchanged tool names."""
    return encode_messages(list(messages), _Untouched(), {})


def fallback(messages: Iterable[Message]) -> list[Message]:
    """Return the conversation for a model that only writes text: each call as a JSON object, each result as a marked message of the user.

    A message with several calls becomes several exchanges, so that roles alternate. Pictures, sound and files in a result are replaced by a
    text that names them, because such a model may not accept them.
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
            told.append(UserMessage("\n".join((marked_result(message.name, texts), *_notes_for_pictures(message)))))
        else:
            told.append(message)
    return told


def from_native(items: Iterable[Mapping[str, object]]) -> list[Message]:
    """Convert OpenAI chat messages to a conversation. Items without a known role are left out; repair the rest with `repair_history`."""
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
    """Return why the call is made: the text before it, and its own reasoning."""
    return "\n".join(text for text in (said, call.reasoning or "") if text)


def _notes_for_pictures(message: ToolMessage) -> list[str]:
    """Return the texts that replace pictures, which a text result cannot contain."""
    return [f"[{part_text(part).strip('[]')}: a picture, which is not shown here]" for part in images([message])]


class _Untouched(WireNames):
    """Leaves tool names unchanged, because the messages are not for a provider."""

    def to_wire(self, name: str) -> str:
        return name


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(_text_of(part) for part in parts if isinstance(part, dict))


def _text_of(part: Mapping[str, object]) -> str:
    """Return a stored part's text, or a note that names a part without text."""
    text, kind = part.get("text", part.get("refusal")), str(part.get("type") or "text")
    return text if isinstance(text, str) else "" if kind in ("text", "refusal") else f"[{kind[:40]}, which is not taken over]"


def _calls(items: object) -> list[ToolCall]:
    calls = []
    for item in items if isinstance(items, list) else ():
        payload, is_custom = chat_payload(item) if isinstance(item, dict) else (None, False)
        if not isinstance(payload, dict):
            continue
        if is_custom:
            text = str(payload.get("input") or "")
        else:
            arguments = payload.get("arguments")
            text = arguments if isinstance(arguments, str) else json_text(arguments or {})
        calls.append(ToolCall(id=str(item.get("id") or ""), name=str(payload.get("name") or ""), arguments=text, custom=is_custom))
    return calls
