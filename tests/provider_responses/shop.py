"""A shop with refunds and a stock, and responses that call them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from callgate import Allow, Ask, Tool, tool
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall

__all__ = ["A7", "LAMPS", "AskAboutRefunds", "LookUp", "claude", "completion", "paid", "refund", "stock"]

paid: list[str] = []


@tool
def refund(order: str) -> str:
    """Refund an order."""
    paid.append(order)
    return f"refunded {order}"


@tool(effect="none")
def stock(article: str) -> int:
    """Count an article."""
    return len(article)


class LookUp(Tool):
    """Counts an article, under a name that a provider refuses.

    Args:
        started: Set when a call has started.
    """

    name = "stock/look_up"
    description = "Count an article."
    parameters = {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}
    category = "safe_chain"
    requires_actor = False
    effect = "none"
    wraps_result = True

    def __init__(self, started: threading.Event | None = None) -> None:
        self._started = started or threading.Event()

    async def execute(self, actor: str, **params: Any) -> Any:
        self._started.set()
        return {"lamp": 3}[params["article"]]


class AskAboutRefunds:
    """A human has to decide about each refund."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="Refund?", rule="refunds") if call.tool.name == "refund" else Allow(rule="rest")


def claude(*calls: tuple[str, Mapping[str, object]], text: str = "", message_id: str = "msg_1", reason: str = "tool_use") -> dict[str, Any]:
    """Return a response of Anthropic's API with these calls."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": dict(given)} for n, (name, given) in enumerate(calls)]
    return {"id": message_id, "type": "message", "role": "assistant", "model": "claude", "stop_reason": reason, "content": content}


def completion(*calls: tuple[str, str], finish: str = "tool_calls", content: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chat completion with these calls, whose ids are `call_0`, `call_1` and so on."""
    items = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, **({"tool_calls": items} if items else {})}
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "finish_reason": finish, "message": message}], **more}


LAMPS = ("stock", '{"article": "lamp"}')
A7 = ("refund", '{"order": "A7"}')
