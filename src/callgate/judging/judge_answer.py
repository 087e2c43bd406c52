"""Read the answer of a judge's model strictly: one verdict with a reason, as one forced call or one JSON object, and nothing else."""

from __future__ import annotations

from typing import Final

from callgate._engine_limits import Limits
from callgate._json import strict_object
from callgate.errors import CallFailed
from callgate.models.wire.request import ToolSpec
from callgate.protocols import Judgment
from callgate.stream import StreamResult

__all__ = ["AS_TEXT", "SCHEMA", "VERDICT", "judgment_of"]

SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["allow", "deny", "ask"]},
        "reason": {"type": "string", "description": "One or two sentences."},
    },
    "required": ["verdict", "reason"],
    "additionalProperties": False,
}
VERDICT: Final = ToolSpec(name="give_verdict", description="Say whether the call may run. Call this exactly once.", schema=SCHEMA)
AS_TEXT: Final = '\n\nAnswer with nothing but one JSON object: {"verdict": "allow" or "deny" or "ask", "reason": "..."}.'
_WORDS: Final = ("allow", "deny", "ask")
_BOUNDS: Final = Limits(arguments_bytes=16_384, arguments_depth=4, arguments_keys=16)


def judgment_of(result: StreamResult, *, native_tools: bool) -> Judgment:
    """Return the judgment in the model's answer; a deny with the reason if the answer contains no valid judgment."""
    if result.status == "error":
        return Judgment(verdict="deny", reason=f"the judge's model failed: {result.reason.removesuffix('.')}", failed="error")
    text = _call_of(result) if native_tools else _text_of(result)
    try:
        said = strict_object(text, _BOUNDS) if text else {}
    except CallFailed:
        said = {}
    verdict, reason = said.get("verdict"), said.get("reason")
    if said.keys() != {"verdict", "reason"} or verdict not in _WORDS or not isinstance(reason, str) or not reason.strip():
        return Judgment(verdict="deny", reason="the judge gave no verdict in the form that was asked for", failed="malformed")
    return Judgment(verdict=verdict, reason=reason)


def _call_of(result: StreamResult) -> str:
    """Return the arguments of the one complete call of the named tool; empty if there is not exactly one."""
    if result.status != "function_call" or len(result.calls) != 1 or result.closed[0] == "cut" or result.calls[0].name != VERDICT.name:
        return ""
    return result.calls[0].arguments


def _text_of(result: StreamResult) -> str:
    return result.text if result.status == "completed" and result.finish == "stop" else ""
