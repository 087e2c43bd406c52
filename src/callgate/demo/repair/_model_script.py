"""Convert the main demonstration's script to the turns of a scripted model.

A turn consists of text, calls, and the points where its message pauses or is cut off.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from callgate.demo._scripted_messages import Choice, fill
from callgate.demo.repair._project import test_command
from callgate.testing import Call, End, Item, Pause, ReceivedRequest
from callgate.testing.scripted_server import Script

__all__ = ["reading_pace", "turns"]

_WORD_S = 0.03
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def turns(choices: list[Choice], held: Pause) -> Callable[[ReceivedRequest], Script]:
    """Return a function that selects the message to send by the number of messages already sent.

    The first message is held after its first call.
    """
    return lambda received: _turn(choices[_number(received)], held if _number(received) == 0 else None, received)


def _number(received: ReceivedRequest) -> int:
    messages: Any = received.body_json.get("messages", [])
    return sum(message.get("role") == "assistant" for message in messages)


def _turn(choice: Choice, held: Pause | None, received: ReceivedRequest) -> list[Item]:
    """Return the items of a message. Hashes of earlier results are copied from the prompt."""
    known = {"test_command": json.dumps(test_command()), **_hashes(received)}
    items: list[Item] = [*_words(choice)]
    for item in choice["message"]["tool_calls"]:
        items.append(Call(item["function"]["name"], fill(item["function"]["arguments"], known), id=item["id"]))
        if held is not None:
            items.append(held)
            held = None
    return [*items, End("length")] if choice["finish_reason"] == "length" else items


def _words(choice: Choice) -> list[str]:
    return re.findall(r"\S+\s*", choice["message"]["content"])


def _hashes(received: ReceivedRequest) -> dict[str, str]:
    """Return the hash that each result in the prompt names, by the id of its call."""
    messages: Any = received.body_json.get("messages", [])
    results = [message for message in messages if message.get("role") == "tool"]
    found = ((message["tool_call_id"], _DIGEST.search(str(message["content"]))) for message in results)
    return {call: match[0] for call, match in found if match is not None}


def reading_pace(choices: list[Choice]) -> Callable[[ReceivedRequest, int], Awaitable[None]]:
    """Stream each message's words at reading speed and its calls at once."""

    async def pace(received: ReceivedRequest, piece: int) -> None:
        if piece <= len(_words(choices[_number(received)])):
            await asyncio.sleep(_WORD_S)

    return pace
