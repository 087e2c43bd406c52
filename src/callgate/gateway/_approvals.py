"""Ask the user of a client about the client's own call, in the form of an MCP elicitation.

Pure: makes the question and reads the answer. `_tool_calls.py` asks it, if the client can show a form and its principal may approve its
own calls.

Source: MCP 2025-11-25 and 2026-07-28, Elicitation: "Form mode".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from callgate.calls import Suspended

__all__ = ["UserAnswer", "approval_form", "pending_text", "read_answer"]

_REASON_CHARS = 500


class UserAnswer(Struct, frozen=True):
    """What the user of a client has answered."""

    verdict: Literal["approve", "deny", "no answer"]
    reason: str = ""


def approval_form(question: str) -> dict[str, Any]:
    """Return the params of `elicitation/create` that ask the user about one call."""
    return {
        "mode": "form",
        "message": question,
        "requestedSchema": {
            "type": "object",
            "properties": {
                "approve": {"type": "boolean", "title": "Run this call", "description": "Yes: it runs once, exactly as shown."},
                "reason": {"type": "string", "title": "Reason", "description": "Optional. The model is told.", "maxLength": _REASON_CHARS},
            },
            "required": ["approve"],
        },
    }


def read_answer(result: Mapping[str, Any]) -> UserAnswer:
    """Return the answer in a client's result. Only an accepted form with `approve: true` approves."""
    action, content = result.get("action"), result.get("content")
    if action == "decline":
        return UserAnswer("deny")
    if action != "accept" or not isinstance(content, dict) or not isinstance(content.get("approve"), bool):
        return UserAnswer("no answer")
    reason = content.get("reason")
    return UserAnswer("approve" if content["approve"] else "deny", reason[:_REASON_CHARS] if isinstance(reason, str) else "")


def pending_text(asked: Suspended) -> str:
    """Return what a model is told of a call that waits for a human."""
    return (
        f"{asked.question.rstrip('.')}. The call has not run: a human has to approve it first (approval {asked.approval_id}). Tell the"
        " user. When it is approved, make the same call again, with exactly the same arguments; it then runs once."
    )
