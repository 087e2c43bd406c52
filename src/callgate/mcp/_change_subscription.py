"""The subscription to changes of a server, in the stateless era: a request that lasts, and is sent again when it has ended.

A server does not report changes between two subscriptions, so everything counts as changed when it confirms the next one.

Source: MCP 2026-07-28, Subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from typing import Any

from callgate._backoff import backoff_s
from callgate._secret_redaction import RedactedLog
from callgate.mcp._connection import McpError
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError

__all__ = ["ChangeSubscription"]

_METHOD = "subscriptions/listen"
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


class ChangeSubscription:
    """Keeps a subscription open.

    Args:
        send: Sends a request and returns its result.
        wanted: Returns the notifications to subscribe to, as the protocol writes them; empty for none.
        on_missed: Called when changes may have been missed, with whether the server was lost: it ended, or its stream did.
        is_restarted: Whether the server has ended before, so that changes may have been missed already.
        label: The server, for logs.
    """

    def __init__(
        self,
        send: Callable[[str, Mapping[str, Any]], Awaitable[object]],
        wanted: Callable[[], Mapping[str, Any]],
        on_missed: Callable[[bool], None],
        log: RedactedLog,
        label: str,
        *,
        is_restarted: bool = False,
    ) -> None:
        self._send = send
        self._wanted = wanted
        self._on_missed = on_missed
        self._log = log
        self._label = label
        self._confirmed = False
        self._missed = self._was_lost = is_restarted
        self._owner: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[None] | None = None
        """Done when the server has confirmed or refused the current subscription; None if no task waits for that."""

    def open(self) -> None:
        """Subscribe to what is wanted now, in place of what was before."""
        self.close()
        if self._wanted():
            self._owner = asyncio.get_running_loop().create_task(self._keep_open(), context=Context())

    async def renew(self) -> None:
        """Subscribe to what is wanted now, and wait until the server has confirmed it.

        Raises:
            RpcError: The server refuses.
        """
        self.open()
        if self._owner is not None:
            self._answer = self._answer or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._answer)

    def close(self) -> None:
        if self._owner is not None:
            self._owner.cancel()
            self._owner = None

    def confirm(self) -> None:
        """Record that the server has confirmed the subscription."""
        self._confirmed = True
        self._settle_answer(None)
        if self._missed:
            self._on_missed(self._was_lost)
        self._missed, self._was_lost = True, False

    async def _keep_open(self) -> None:
        """Subscribe repeatedly until the server says that it has no subscriptions."""
        failures = 0
        while True:
            self._confirmed = False
            try:
                await self._send(_METHOD, {"notifications": self._wanted()})
            except RpcError as error:
                self._log.debug("%s refused the subscription to its changes: %s", self._label, error)
                self._settle_answer(error)
                if error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
                    return
            except McpError as error:
                self._log.debug("%s ended the subscription to its changes: %s", self._label, error)
            self._was_lost = self._was_lost or self._confirmed
            failures = 1 if self._confirmed else failures + 1
            await asyncio.sleep(backoff_s(failures, base_s=_FIRST_WAIT_S, max_s=_LONGEST_WAIT_S))

    def _settle_answer(self, error: RpcError | None) -> None:
        waiting, self._answer = self._answer, None
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)
