"""What the messages of a Pydantic AI run say about its calls: which response made them, and what a human has said.

Must not know of engines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

__all__ = ["denial", "denied_calls", "goes_on_with_record", "made_by", "recorded_answers"]

_RECORDED = "callgate_recorded"
"""The mark in the metadata of a call that goes on with the answer that the engine's journal has."""


def recorded_answers(requests: DeferredToolRequests | Iterable[str]) -> DeferredToolResults:
    """Return results with which a run goes on with the answers that the engine's journal has, and with no others.

    For answers that come from `callgate approve`, `callgate deny`, `engine.approve` or `engine.deny`. A call that nobody has
    answered, or that the engine has not asked about, is deferred again.

    Args:
        requests: What the run has ended with, or the ids of its calls that wait for approval.
    """
    ids = [call.tool_call_id for call in requests.approvals] if isinstance(requests, DeferredToolRequests) else list(requests)
    return DeferredToolResults(approvals=dict.fromkeys(ids, True), metadata={one: {_RECORDED: True} for one in ids})


def goes_on_with_record(ctx: RunContext[Any]) -> bool:
    """Return whether the call of this context goes on because of `recorded_answers`."""
    return _RECORDED in (ctx.tool_call_metadata or {})


def made_by(ctx: RunContext[Any]) -> tuple[str, ToolCallPart | None]:
    """Return what identifies the model's message that made the call, and the call as the model made it."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse):
            for part in message.parts:
                if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                    return message.provider_response_id or message.timestamp.isoformat(), part
    return "", None


def denied_calls(ctx: RunContext[Any]) -> list[ToolReturnPart]:
    """Return what the model is told in the latest message about calls that a human has denied. Pydantic AI does not make them."""
    latest = ctx.messages[-1] if ctx.messages else None
    parts = latest.parts if isinstance(latest, ModelRequest) else ()
    return [part for part in parts if isinstance(part, ToolReturnPart) and part.outcome == "denied"]


def denial(denied: ToolReturnPart, name: str, call_id: str) -> str | None:
    """Return the reason why a call was denied; None if it is another one than `denied`."""
    return str(denied.content) if (name, call_id) == (denied.tool_name, denied.tool_call_id) else None
