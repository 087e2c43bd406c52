"""How a call has ended, read from its result for metrics and traces. Pure.

The values are of closed sets, because a server may have written anything into a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate.errors import FAILURE_CLASSES
from callgate.gateway._tool_calls.tool_results import OUTCOME_KEY
from callgate.mcp._connection import Message

__all__ = ["end_of", "outcome_of"]

_STATUSES = frozenset({"ok", "error", "unknown", "waiting"})


def outcome_of(result: Message) -> Mapping[str, Any]:
    """Return what callgate says of a call in its result; empty if it says nothing."""
    meta = result.get("_meta")
    outcome = meta.get(OUTCOME_KEY) if isinstance(meta, dict) else None
    return outcome if isinstance(outcome, dict) else {}


def end_of(result: Message) -> tuple[str, str]:
    """Return the status and the failure class of a result; the class is empty on success."""
    outcome = outcome_of(result)
    status, failure = outcome.get("status"), outcome.get("failure", "")
    if not isinstance(status, str) or status not in _STATUSES:
        return ("error", "tool_declared") if result.get("isError") is True else ("ok", "")
    return status, failure if isinstance(failure, str) and (failure in FAILURE_CLASSES or not failure) else "other"
