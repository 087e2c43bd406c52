"""The addresses that one client was asked to let its user open, so that it is told when the user is done there.

Source: MCP 2025-11-25, Elicitation: "URL Mode", "Completion Notifications", "URL Elicitation Required Error".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callgate.mcp._messages import RpcError

__all__ = ["UrlQuestions"]

_REQUIRED: Final = -32042
"""The error by which a server refuses a request until the user has been at an address."""
_MOST: Final = 1_000


class UrlQuestions:
    """The ids of the latest of these questions."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, elicitation_id: object) -> bool:
        return elicitation_id in self._ids

    def note(self, question: Mapping[str, Any]) -> None:
        """Note the `params` of a question to the user, if it is one with an address."""
        number = question.get("elicitationId")
        if question.get("mode") == "url" and isinstance(number, str):
            self._ids[number] = None
            if len(self._ids) > _MOST:
                del self._ids[next(iter(self._ids))]

    def note_error(self, error: RpcError) -> None:
        """Note the questions in an error of a server."""
        asked = error.data.get("elicitations") if error.code == _REQUIRED and isinstance(error.data, dict) else None
        for question in asked if isinstance(asked, list) else ():
            if isinstance(question, dict):
                self.note(question)
