"""Remove secrets from everything that clients get of a server, beside the results of calls: lists, resources, prompts, progress, log
messages, questions and definitions. The same redactor keeps them out of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate._json import decode, plain_bytes
from callgate._secret_redaction import Redactor
from callgate.mcp._messages import RpcError

__all__ = ["ClientRedaction"]


class ClientRedaction:
    """Removes secrets from messages for clients.

    Args:
        redactor: Knows the secrets; None: nothing is secret.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor

    def clean(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message without secrets: the same object if it has none, and an empty one if nothing valid is left."""
        if self._redactor is None:
            return message
        body = plain_bytes(message)
        redacted = self._redactor.redact(body)
        if redacted == body:
            return message
        found = decode(redacted)
        return found if isinstance(found, dict) else {}

    def clean_error(self, error: RpcError) -> RpcError:
        """Return an error of a server without secrets."""
        if self._redactor is None:
            return error
        body = self.clean(error.body)
        return RpcError.received({**body, "code": error.code, "message": str(body.get("message", ""))})
