"""Ask the user of a client about the client's own call, in the form of an MCP elicitation.

Pure: makes the question and reads the answer. The question shows the tool and its final arguments, so that the user knows what will run.
Texts of models and servers cannot look like another part of the question: each argument is one line, and control characters are escaped.

Source: MCP 2025-11-25 and 2026-07-28, Elicitation: "Form mode".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import DecodeError, Struct

from callgate._json import decode, json_text
from callgate._terminal_text import one_line, printable_json, shortened
from callgate.calls import Suspended

__all__ = ["UserAnswer", "approval_form", "argument_lines", "pending_text", "read_answer", "tool_line"]

_REASON_CHARS = 500
_ABOUT_REASON = "Optional. Recorded; with a no, the model is told."
_QUESTION_CHARS = 1_000
_VALUE_CHARS = 1_000
"""The most characters of one argument that are shown."""
_MOST_ARGUMENTS = 50
_SHOWN_CHARS = 12_000


class UserAnswer(Struct, frozen=True):
    """What the user of a client has answered."""

    verdict: Literal["approve", "deny", "no answer"]
    reason: str = ""


def approval_form(asked: Suspended) -> dict[str, Any]:
    """Return the params of `elicitation/create` that ask the user about one call."""
    return {
        "mode": "form",
        "message": _shown_call(asked),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "approve": {"type": "boolean", "title": "Run this call", "description": "Yes: it runs once, exactly as shown."},
                "reason": {"type": "string", "title": "Reason", "description": _ABOUT_REASON, "maxLength": _REASON_CHARS},
            },
            "required": ["approve"],
        },
    }


def _shown_call(asked: Suspended) -> str:
    """Return the question as a human reads it: with the tool, its final arguments, and the rule that asks."""
    lines = argument_lines(asked.arguments, asked.approval_id)
    rule = [f"Asked by: {one_line(asked.rule)}"] if asked.rule else []
    return "\n".join([one_line(asked.question, _QUESTION_CHARS), "", tool_line(asked.tool, asked.server), *lines, *rule])


def tool_line(tool: str, server: str) -> str:
    return f"Tool: {one_line(tool)}" + (f", of the server {one_line(server)}" if server else "")


def argument_lines(arguments: str, approval_id: str) -> list[str]:
    """Return the final arguments of a call, one in each line, and how to see the rest if they are too long.

    Args:
        arguments: As JSON.
    """
    lines, whole = _lines(arguments)
    rest = f"(Not all of the arguments are shown; `callgate log show {one_line(approval_id)} --journal FILE` shows more.)"
    return lines if whole else [*lines, rest]


def _lines(arguments: str) -> tuple[list[str], bool]:
    """Return one line for each argument, and whether they show everything."""
    try:
        values = decode(arguments)
    except DecodeError:  # a redactor has removed more than a text
        values = None
    if not isinstance(values, dict):
        return [f"Arguments: {one_line(arguments, _VALUE_CHARS)}"], len(arguments) <= _VALUE_CHARS
    if not values:
        return ["Arguments: none"], True
    lines, whole, left = ["Arguments:"], len(values) <= _MOST_ARGUMENTS, _SHOWN_CHARS
    for name, value in list(values.items())[:_MOST_ARGUMENTS]:
        text = printable_json(json_text(value))
        most = min(_VALUE_CHARS, left)
        shown = shortened(text, most)
        whole = whole and shown is text and len(name) <= _VALUE_CHARS
        left = max(0, left - len(shown))
        lines.append(f"  {one_line(name, _VALUE_CHARS)}: {shown}")
    return lines, whole


def read_answer(result: Mapping[str, Any]) -> UserAnswer:
    """Return the answer in a client's result. Only an accepted form with `approve: true` approves."""
    action, content = result.get("action"), result.get("content")
    if action == "decline":
        return UserAnswer("deny")
    if action != "accept" or not isinstance(content, dict) or not isinstance(content.get("approve"), bool):
        return UserAnswer("no answer")
    reason = content.get("reason")
    return UserAnswer("approve" if content["approve"] else "deny", reason[:_REASON_CHARS] if isinstance(reason, str) else "")


def pending_text(asked: Suspended, *, expired: bool) -> str:
    """Return the text for the model about a call that waits for approval, or whose question has expired."""
    question = asked.question if asked.question.endswith((".", "?", "!")) else f"{asked.question}."
    if expired:
        return (
            f"{question} The call has not run: a human has to approve it first, and nobody has answered in time (approval"
            f" {asked.approval_id} has expired). Tell the user. Made again, the call asks again."
        )
    return (
        f"{question} The call has not run: a human has to approve it first (approval {asked.approval_id}). Tell the user. When it is"
        " approved, make the same call again, with exactly the same arguments; it then runs once."
    )
