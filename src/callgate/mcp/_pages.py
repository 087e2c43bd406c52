"""Follow the pages of a server's list to its end, within bounds.

Source: MCP 2026-07-28, Utilities: "Pagination".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate.mcp._connection import Message, ProtocolError
from callgate.mcp._messages import RpcError

__all__ = ["ListedItems", "Send", "all_items"]

Send = Callable[[str, Mapping[str, Any]], Awaitable[Message]]
"""Sends a request and returns its result."""

_MOST_PAGES = 1_000
_MOST_ITEMS = 5_000


class ListedItems(Struct, frozen=True):
    """The items of a server's list, as the server sent them."""

    items: list[Message]
    gap: str = ""
    """Why items of the list may be missing, as the rest of a sentence about the server; empty if the list is complete."""


async def all_items(send: Send, method: str, key: str, server: str, log: RedactedLog) -> ListedItems:
    """Return the items of all pages. A list that cannot be followed to its end is logged, and has the items up to there.

    Args:
        key: Where the items are in the result of `method`.
        server: The server, for errors and logs.

    Raises:
        McpError: The server does not answer, does not list the following pages, or its answer is not a list.
        RpcError: The server answered the first request with an error.
    """
    found: list[Message] = []
    cursor: str | None = None
    seen: set[str] = set()
    gap = f"lists more than {_MOST_ITEMS} {key} or {_MOST_PAGES} pages; the rest is left out"
    for _ in range(_MOST_PAGES):
        try:
            result = await send(method, {} if cursor is None else {"cursor": cursor})
        except RpcError as error:
            if cursor is None:
                raise
            raise ProtocolError(f"{server} did not list all of its {key}: {error.message[:300]} ({error.code}).") from error
        items = result.get(key)
        if not isinstance(items, list):
            raise ProtocolError(f"{server} sent {key} that are not a list.")
        found += [one for one in items if isinstance(one, dict)]
        following = result.get("nextCursor")
        if following is None:
            return ListedItems(found)
        if fault := _cursor_fault(following, seen, key):
            gap = f"{fault}; what it lists after that is left out"
            break
        if len(found) > _MOST_ITEMS:
            break
        seen.add(following)
        cursor = following
    log.warning("%s %s", server, gap)
    return ListedItems(found[:_MOST_ITEMS], gap)


def _cursor_fault(cursor: object, seen: Collection[str], key: str) -> str:
    """Return why the next page cannot be asked for, as the rest of a sentence about the server; empty if it can."""
    if not isinstance(cursor, str):
        return f"has {cursor!r:.40} as nextCursor in its list of {key}, which must be a text"
    return f"gives the same cursor twice in its list of {key}" if cursor in seen else ""
