"""The elicitations in URL mode that one client was sent, so that it is told when they are complete.

Source: MCP 2025-11-25, Elicitation: "URL Mode", "Completion Notifications", "URL Elicitation Required Error".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from callgate.mcp._messages import URL_ELICITATION_REQUIRED, RpcError

__all__ = ["UrlElicitations"]

_MOST: Final = 1_000


class UrlElicitations:
    """The ids of the latest 1,000 elicitations in URL mode."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, elicitation_id: object) -> bool:
        return elicitation_id in self._ids

    def note(self, elicitation: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add an elicitation, given its `params`, and return it. One in form mode is ignored.

        One without an id, as servers of revision 2026-07-28 send them, gets one: clients up to 2025-11-25 refuse it otherwise.
        """
        if elicitation.get("mode") != "url":
            return elicitation
        elicitation = {**elicitation, "elicitationId": elicitation.get("elicitationId", f"callgate-{uuid4().hex}")}
        if isinstance(elicitation["elicitationId"], str):
            self._ids[elicitation["elicitationId"]] = None
            if len(self._ids) > _MOST:
                del self._ids[next(iter(self._ids))]
        return elicitation

    def note_error(self, error: RpcError) -> None:
        """Add the elicitations of an error `-32042`. Other errors are ignored."""
        if error.code != URL_ELICITATION_REQUIRED or not isinstance(error.data, dict):
            return
        listed = error.data.get("elicitations")
        for elicitation in listed if isinstance(listed, list) else ():
            if isinstance(elicitation, dict):
                self.note(elicitation)
