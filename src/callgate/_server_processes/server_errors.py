"""The errors of a request to a tool server.

An error says what is certain: `NotSent` proves that the server never got the request, the others do not.
"""

from __future__ import annotations

from callgate.errors import CallgateError

__all__ = ["ConnectionLost", "NotSent", "ProtocolError", "ToolServerError"]


class ToolServerError(CallgateError):
    """A request to a tool server has no valid answer. The message names the server, what happened, and the next step."""

    code = "tool_server_error"

    def __init__(self, message: str, *, code: str | None = None, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.details = details
        """Facts for the record, such as an exit code. Not shown to the model."""


class NotSent(ToolServerError):
    """The server certainly did not get the request, or refused it unseen, so it may be sent again.

    Args:
        retryable: Whether the same request may succeed in a moment, without a change of the configuration.
        retry_after_s: Seconds after which it may succeed at the earliest; infinite: not soon enough to wait for it. None: not known.
    """

    code = "not_sent"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: dict[str, object] | None = None,
        retryable: bool = True,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code, details=details)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ConnectionLost(ToolServerError):
    """The request was sent, and the connection ended before the answer. It may have taken effect."""

    code = "tool_crashed"


class ProtocolError(ToolServerError):
    """The request was sent, and the server's answer is not a result that can be used. The request may have taken effect.

    Its code is `protocol_error`, `output_too_large`, `too_deep`, or that of a subclass.

    Args:
        retryable: Whether the same request may succeed in a moment. It is sent again only if a repetition is safe.
    """

    code = "protocol_error"

    def __init__(self, message: str, *, code: str | None = None, details: dict[str, object] | None = None, retryable: bool = False) -> None:
        super().__init__(message, code=code, details=details)
        self.retryable = retryable
