"""The elicitations in URL mode that one client was sent, so that it is told when they are complete.

Source: MCP 2025-11-25, Elicitation: "URL Mode", "Completion Notifications", "URL Elicitation Required Error".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callgate.mcp._messages import RpcError

__all__ = ["UrlElicitations"]

_URL_ELICITATION_REQUIRED: Final = -32042
_MOST: Final = 1_000


class UrlElicitations:
    """The ids of the latest 1,000 elicitations in URL mode."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, elicitation_id: object) -> bool:
        return elicitation_id in self._ids

    def note(self, elicitation: Mapping[str, Any]) -> None:
        """Add an elicitation, given its `params`. One in form mode is ignored."""
        elicitation_id = elicitation.get("elicitationId")
        if elicitation.get("mode") == "url" and isinstance(elicitation_id, str):
            self._ids[elicitation_id] = None
            if len(self._ids) > _MOST:
                del self._ids[next(iter(self._ids))]

    def note_error(self, error: RpcError) -> None:
        """Add the elicitations of an error `-32042`. Other errors are ignored."""
        if error.code != _URL_ELICITATION_REQUIRED or not isinstance(error.data, dict):
            return
        listed = error.data.get("elicitations")
        for elicitation in listed if isinstance(listed, list) else ():
            if isinstance(elicitation, dict):
                self.note(elicitation)
