"""The runs of the journal that have the calls of clients.

A run is one session of a client. Clients of the stateless era have no sessions, so all requests of a principal share a run; after many
calls a new one is begun, because the engine keeps the state of the runs in use in memory.
"""

from __future__ import annotations

import secrets

from msgspec import Struct

__all__ = ["ClientRuns"]

_MOST_CALLS = 5_000


class _Run(Struct):
    name: str
    calls: int = 0


class ClientRuns:
    """The runs of one gateway.

    Args:
        replica: The name of this gateway among several with one journal.
    """

    def __init__(self, replica: str) -> None:
        self._prefix = f"mcp-{replica}-" if replica else "mcp-"
        self._by_principal: dict[str, _Run] = {}

    def new(self) -> str:
        """Return the name of a new run."""
        return self._prefix + secrets.token_hex(6)

    def of(self, principal: str) -> str:
        """Return the run for a principal's next request."""
        run = self._by_principal.get(principal)
        if run is None or run.calls >= _MOST_CALLS:
            run = self._by_principal[principal] = _Run(self.new())
        run.calls += 1
        return run.name
