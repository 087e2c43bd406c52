"""Find the items of an answer that wait for the host: calls of tools that OpenAI defines and the host runs, and requests for approval.

Such a call, for example `computer_call` or `shell_call`, has a `call_id`, and its output belongs to it by that id. If OpenAI ran the
call, the same answer contains the output. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.messages import AssistantMessage, Native

__all__ = ["host_calls", "is_host_call", "is_unanswered"]

_APPROVAL_REQUEST = "mcp_approval_request"


def host_calls(message: AssistantMessage) -> tuple[Mapping[str, object], ...]:
    """Return the items that the host must answer itself, as received."""
    return tuple([part.item for part in message.parts if isinstance(part, Native) and is_host_call(part, message)])


def is_host_call(native: Native, message: AssistantMessage) -> bool:
    """Return whether the host must answer this item. An incomplete call cannot be run."""
    if native.kind == _APPROVAL_REQUEST:
        return True
    return native.item.get("status") != "incomplete" and is_unanswered(native, message)


def is_unanswered(native: Native, message: AssistantMessage) -> bool:
    """Return whether this is a call whose output is not in the same answer. The API refuses such a call without an output."""
    call_id = native.item.get("call_id")
    if not call_id or not native.kind.endswith("_call"):
        return False
    others = (part for part in message.parts if isinstance(part, Native) and part is not native)
    return not any(other.item.get("call_id") == call_id for other in others)
