"""Follow the pages of a server's list to its end, within bounds.

Source: MCP 2026-07-28, Utilities: "Pagination".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from callgate._secret_redaction import RedactedLog
from callgate.mcp._connection import Message, ProtocolError
from callgate.mcp._messages import RpcError

__all__ = ["Send", "all_items"]

Send = Callable[[str, Mapping[str, Any]], Awaitable[Message]]
"""Sends a request and returns its result."""

_MOST_PAGES = 1_000
_MOST_ITEMS = 5_000


async def all_items(send: Send, method: str, key: str, server: str, log: RedactedLog) -> list[Message]:
    """Return the items of all pages, as the server sent them.

    Args:
        key: Where the items are in the result of `method`.
        server: The server, for errors and logs.

    Raises:
        McpError: The server does not answer, does not list the following pages, or its answer is no list.
        RpcError: The server answered the first request with an error.
    """
    found: list[Message] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(_MOST_PAGES):
        try:
            result = await send(method, {} if cursor is None else {"cursor": cursor})
        except RpcError as error:
            if cursor is None:
                raise
            raise ProtocolError(f"{server} did not list all of its {key}: {error.message[:300]} ({error.code}).") from error
        items = result.get(key)
        if not isinstance(items, list):
            raise ProtocolError(f"{server} sent a list of {key} that is no list.")
        found += [one for one in items if isinstance(one, dict)]
        following = result.get("nextCursor")
        if not isinstance(following, str):
            return found
        if following in seen:
            log.warning("%s gives the same cursor twice in its list of %s; what it lists after that is left out", server, key)
            return found[:_MOST_ITEMS]
        if len(found) > _MOST_ITEMS:
            break
        seen.add(following)
        cursor = following
    log.warning("%s lists more than %s %s or %s pages; the rest is left out", server, _MOST_ITEMS, key, _MOST_PAGES)
    return found[:_MOST_ITEMS]
