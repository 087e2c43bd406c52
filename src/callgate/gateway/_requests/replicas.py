"""Several gateways on one journal: which of them holds a session or a waiting request.

Calls, approvals and leases are in the journal, so that any gateway continues them. A session of the handshake era and a request that waits
for its client live in one process. Their ids are sealed and name its address, so that another gateway can pass the client's messages on to
it. Knows no transport.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from callgate.gateway._requests.request_states import RequestStates

__all__ = ["Replicas", "is_about_task"]

_SESSION = b"session "


class Replicas:
    """The place of one gateway among those that share its journal and its secret.

    Args:
        url: The address at which the others reach this one, such as `http://10.0.0.3:8765`; empty if there are no others.
    """

    def __init__(self, url: str, states: RequestStates) -> None:
        self.url = url.rstrip("/")
        self._states = states

    def new_session_id(self) -> str:
        """Return an id that nobody can guess."""
        token = secrets.token_urlsafe(32)
        return self._states.seal_bytes(_SESSION + f"{self.url} {token}".encode()) if self.url else token

    def of_session(self, session_id: str) -> str:
        """Return the address of the other gateway that has made a session id; empty if it is this one, or not known."""
        data = self._states.unseal(session_id) if self.url else None
        if data is None or not data.startswith(_SESSION):
            return ""
        return self._unless_here(data.removeprefix(_SESSION).partition(b" ")[0].decode())

    def of_request(self, message: Mapping[str, Any]) -> str:
        """Return the address of the other gateway that has the request or the task that this message is about; empty if it is here."""
        params = message.get("params")
        key = "taskId" if is_about_task(message) else "requestState"
        state = params.get(key) if self.url and isinstance(params, dict) else None
        return self._unless_here(self._states.replica_of(state)) if state is not None else ""

    def _unless_here(self, url: str) -> str:
        return "" if url == self.url else url


def is_about_task(message: Mapping[str, Any]) -> bool:
    """Return whether a message is about a task, which any gateway of the journal can continue."""
    return message.get("method") in ("tasks/get", "tasks/update", "tasks/cancel")
