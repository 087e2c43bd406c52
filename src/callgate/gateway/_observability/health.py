"""Whether a gateway and its upstream servers work, for load balancers. Pure.

Anybody may read it, so it has neither texts of problems nor names of principals; `Engine.servers_status` has the problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from callgate._version import __version__
from callgate.protocols import ServerStatus

__all__ = ["health"]

_WORKING = frozenset({"ready", "unknown"})


def _works(server: ServerStatus) -> bool:
    """Return whether calls of a server run. A plugin whose tools are known is started by its first call."""
    return server.state in _WORKING or (server.state == "idle" and server.tools > 0)


def health(servers: Iterable[ServerStatus], *, records: bool, closing: bool) -> dict[str, Any]:
    """Return the health of a gateway.

    `degraded`: it answers, but an upstream server does not run. `failed`: its journal takes nothing more, so no call runs. `closing`: it
    takes no requests any more.
    """
    listed = list(servers)
    status: Literal["ok", "degraded", "failed", "closing"] = "ok" if all(map(_works, listed)) else "degraded"
    status = status if records else "failed"
    return {
        "status": "closing" if closing else status,
        "version": __version__,
        "servers": {one.name: {"state": one.state, "tools": one.tools} for one in listed},
    }
