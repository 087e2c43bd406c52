"""Count the requests of each principal that are being answered, streams included, so that none keeps the others from being served."""

from __future__ import annotations

from collections import Counter

from callgate.gateway._http.request_checks import RefusedRequest
from callgate.gateway.principals import Principal

__all__ = ["OpenRequests"]


class OpenRequests:
    """The open requests of all principals.

    Args:
        most: How many one principal may have. A principal whose calls may be more than that may have as many as these.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of.total()

    def add(self, principal: Principal) -> None:
        """Count one more request; `remove` must follow.

        Raises:
            RefusedRequest: The principal has as many as it may.
        """
        name, most = principal.name, max(self._most, principal.parallel + principal.queued)
        if self._of[name] >= most:
            raise RefusedRequest(429, f"{name} has {most} open requests, which is the limit. Wait for responses, or close streams.")
        self._of[name] += 1

    def remove(self, principal: Principal) -> None:
        """Stop counting a request."""
        self._of[principal.name] -= 1
        if not self._of[principal.name]:
            del self._of[principal.name]
