"""The execution of a call whose request to a tool server has failed."""

from __future__ import annotations

import asyncio

from callgate._server_processes.server_errors import NotSent, ProtocolError, ToolServerError
from callgate.protocols import Execution

__all__ = ["execution_of_failure"]


def execution_of_failure(error: ToolServerError, text: str = "") -> Execution:
    """Return the execution of a call that got no answer, or none that can be used.

    Args:
        text: The text of the failure; empty for that of the error.
    """
    text = text or str(error)
    if isinstance(error, NotSent) and isinstance(error.__cause__, asyncio.CancelledError):  # the call's deadline or its kill
        return Execution(status="not_started", error=text, not_started=True)
    if isinstance(error, NotSent) and not error.retryable:
        return Execution(status="raised", error_type="NotSent", error=text, evidence="not_sent", details=error.details)
    if isinstance(error, NotSent):
        after_s = error.retry_after_s
        return Execution(status="not_started", error=text, not_started=True, evidence="not_sent", retryable=True, retry_after_s=after_s)
    if isinstance(error, ProtocolError):
        return Execution(
            status="raised", error_type="ProtocolError", error=text, evidence="reply_lost", retryable=error.retryable, code=error.code
        )
    return Execution(status="crashed", error=text, evidence="reply_lost", retryable=True, details=error.details, code=error.code)
