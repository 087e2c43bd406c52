"""The subscription to changes of a server's tools, in the stateless era: a request that lasts, and is sent again when it has ended.

A server tells nobody of the changes between two subscriptions, so the tools count as changed when it confirms the next one.

Source: MCP 2026-07-28, Subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from callgate._backoff import backoff_s
from callgate._secret_redaction import RedactedLog
from callgate.mcp._connection import McpError
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError

__all__ = ["ToolSubscription"]

_METHOD = "subscriptions/listen"
_PARAMS = {"notifications": {"toolsListChanged": True}}
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


class ToolSubscription:
    """Keeps a subscription open.

    Args:
        send: Sends a request and returns its result.
        on_changed: Called when changes may have been missed.
        label: The server, for logs.
    """

    def __init__(
        self,
        send: Callable[[str, Mapping[str, Any]], Awaitable[object]],
        on_changed: Callable[[], None],
        log: RedactedLog,
        label: str,
    ) -> None:
        self._send = send
        self._on_changed = on_changed
        self._log = log
        self._label = label
        self._confirmed = False
        self._missed = False

    async def keep_open(self, lost: asyncio.Future[str]) -> None:
        """Subscribe again and again until the connection is `lost`, or the server says that it has no subscriptions."""
        failures = 0
        while not lost.done():
            self._confirmed = False
            try:
                await self._send(_METHOD, _PARAMS)
            except RpcError as error:
                self._log.debug("%s refused the subscription to changes of its tools: %s", self._label, error)
                if error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
                    return
            except McpError as error:
                self._log.debug("%s ended the subscription to changes of its tools: %s", self._label, error)
            failures = 1 if self._confirmed else failures + 1
            await asyncio.sleep(backoff_s(failures, base_s=_FIRST_WAIT_S, max_s=_LONGEST_WAIT_S))

    def confirm(self) -> None:
        """Note that the server has confirmed the subscription."""
        self._confirmed = True
        if self._missed:
            self._on_changed()
        self._missed = True
