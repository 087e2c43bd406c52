"""Find out which revision of MCP a server speaks: by a question of the stateless era, a handshake of the older one, or both.

Sources: MCP 2025-11-25, Lifecycle; MCP 2026-07-28, Discovery and version negotiation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from callgate.mcp import _messages as messages
from callgate.mcp._connection import Message, ProtocolError, ServerConnection
from callgate.mcp._messages import RpcError
from callgate.mcp._revisions import (
    CLIENT_INFO,
    HANDSHAKE_REVISIONS,
    LATEST_HANDSHAKE,
    STATELESS_REVISIONS,
    UNSUPPORTED_REVISION,
    Era,
    supported_by_discovery,
    supported_by_error,
)
from callgate.mcp.server_config import McpServer

__all__ = ["Agreement", "EraRefused", "Negotiation"]

_PROBE_S = 5.0
"""Seconds of silence after which a handshake of the older era is begun as well. A process may ignore a method that it does not know."""
_NETWORK_PROBE_S = 15.0
"""The same for a server on the network, which answers each request, but may have to be started for the first."""
_REFUSALS = frozenset({messages.METHOD_NOT_FOUND, messages.INVALID_PARAMS, messages.INVALID_REQUEST, UNSUPPORTED_REVISION})
"""Error codes of a server that does not support the handshake. Others may be temporary."""


class EraRefused(ProtocolError):
    """The server does not support the handshake era, or none of the revisions that callgate supports."""


class Agreement(Struct, frozen=True, kw_only=True):
    """The era and revision that a session and its server agreed on."""

    era: Era
    revision: str
    said: Mapping[str, Any]
    """The result in which the server declares its capabilities."""


class Negotiation(Struct, frozen=True, kw_only=True, eq=False):
    """The beginning of one session."""

    server: McpServer
    name: str
    """The server's name in error texts."""
    connection: ServerConnection
    send: Callable[[str, Mapping[str, Any]], Awaitable[Message]]
    """Sends a request and returns its result."""
    begin_handshake: Callable[[], Mapping[str, Any]]
    """Called before a handshake is sent. Returns the capabilities of the client."""

    async def agree(self, known: Era | None) -> Agreement:
        """Ask whether the server is of the stateless era, and begin a handshake if it is not or says nothing for a while.

        The first valid answer counts, because a server may need longer for its start than the question is waited for.

        Args:
            known: The era of the server if it was found out before; then it is not asked again.

        Raises:
            McpError: The server refuses both eras, or the one that its configuration requires.
        """
        wanted = self.server.era
        loop = asyncio.get_running_loop()
        asked = [] if "handshake" in (known, wanted) else [loop.create_task(self._discover())]
        try:
            if wanted == "stateless":
                return await self._require_stateless(asked[0])
            if asked:
                await asyncio.wait(asked, timeout=_NETWORK_PROBE_S if self.server.url else _PROBE_S)
                if asked[0].done() and (agreement := asked[0].result()):
                    return agreement
            asked.append(loop.create_task(self._initialize()))
            return await _first_agreement(asked)
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _require_stateless(self, asked: asyncio.Task[Agreement | None]) -> Agreement:
        agreement = await asked
        if agreement is None:
            raise ProtocolError(
                f"{self.name} does not speak {' or '.join(STATELESS_REVISIONS)}, and its `era` is set to stateless. Remove that."
            )
        return agreement

    async def _discover(self) -> Agreement | None:
        """Return what a server of the stateless era agrees to; None if it is of the other era."""
        try:
            result = await self.send("server/discover", {})
        except RpcError as error:
            supported = supported_by_error(error.data) if error.code == UNSUPPORTED_REVISION else ()
            return _stateless_agreement(supported, {})
        except ProtocolError:
            return None
        return _stateless_agreement(supported_by_discovery(result) or (), result)

    async def _initialize(self) -> Agreement:
        params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": self.begin_handshake(), "clientInfo": CLIENT_INFO}
        try:
            result = await self.send("initialize", params)
        except RpcError as error:
            advice = " Its `era` is set to handshake. Remove that." if self.server.era == "handshake" else ""
            kind = EraRefused if error.code in _REFUSALS else ProtocolError
            raise kind(f"{self.name} refused to start a session: {error.message[:300]} ({error.code}).{advice}") from error
        revision = result.get("protocolVersion")
        if revision not in HANDSHAKE_REVISIONS:
            raise EraRefused(
                f"{self.name} speaks revision {revision!r:.40} of MCP; this client speaks {', '.join(HANDSHAKE_REVISIONS)} and"
                f" {', '.join(STATELESS_REVISIONS)}. Update one of them."
            )
        self.connection.use(revision)
        await self.connection.notify(messages.notification("notifications/initialized"))
        return Agreement(era="handshake", revision=revision, said=result)


def _stateless_agreement(supported: Sequence[str], said: Mapping[str, Any]) -> Agreement | None:
    """Return the agreement on the latest revision of the stateless era among those that a server supports."""
    found = [one for one in STATELESS_REVISIONS if one in supported]
    return Agreement(era="stateless", revision=found[-1], said=said) if found else None


async def _first_agreement(asked: Sequence[asyncio.Task[Any]]) -> Agreement:
    """Return the first agreement; if there is none, raise the error of the last task."""
    waiting = set(asked)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        agreed = [one.result() for one in reversed(asked) if one in done and one.exception() is None and one.result() is not None]
        if agreed:
            return cast("Agreement", agreed[0])
    return cast("Agreement", asked[-1].result())
