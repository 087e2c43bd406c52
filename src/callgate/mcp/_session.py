"""One negotiated session with a server: what is asked of it, and what it asks and reports in return.

`_negotiation.py` finds out which revision the server speaks; a session adds to each request what that revision needs. It follows the pages
of a list. `_request_rounds.py` gives what the server asks for within a result, and `_server_messages.py` takes what the server sends of its
own. A session does not know how messages are carried, and never sends a request twice.

Sources: MCP 2025-11-25, Lifecycle, Utilities; MCP 2026-07-28, Subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from callgate._secret_redaction import RedactedLog
from callgate.mcp import _messages as messages
from callgate.mcp._change_subscription import ChangeSubscription
from callgate.mcp._connection import ConnectionEvents, ConnectionLost, McpError, Message, NotSent, ProtocolError, ServerConnection
from callgate.mcp._extensions import TASKS
from callgate.mcp._list_freshness import shortest_ttl_s
from callgate.mcp._messages import RpcError
from callgate.mcp._negotiation import Negotiation
from callgate.mcp._pages import all_items
from callgate.mcp._request_rounds import RequestRounds
from callgate.mcp._revisions import (
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    LOG_LEVEL,
    Era,
    request_meta,
)
from callgate.mcp._running_requests import Caller, RunningRequest, RunningRequests
from callgate.mcp._server_messages import RESOURCE_UPDATED, OnNotice, ServerMessages
from callgate.mcp._server_requests import AnswersServer
from callgate.mcp.server_config import McpServer

__all__ = ["Connect", "Session"]

Connect = Callable[[McpServer, ConnectionEvents], ServerConnection]

_ADOPTION_S = 0.1
"""Seconds that a server may take to adopt an answer that it has read: to look for the folders, for example. It does not say when it has."""
_LISTS = ("tools", "prompts", "resources")
_NOBODY = Caller()
_IF_OLDER = "if it is an older server that ends at a request that it does not know, set its era to handshake"
_END_S = 3.0
"""How long the end of a process is waited for after a request has failed."""


class Session:
    """A session on a connection of its own.

    Args:
        requests: Answers the server's requests, if the caller of a request has no client that does.
        subscribed: The URIs of the resources whose changes are wanted; read at each start and each subscription.
        on_notice: Called when the server says that something has changed.
        on_late: Called with the uid of a call that has ended, and the answer that came after that.
        is_restarted: Whether an earlier session has ended or could not be started, so that changes may have been missed.
    """

    def __init__(
        self,
        server: McpServer,
        connect: Connect,
        requests: AnswersServer,
        log: RedactedLog,
        *,
        subscribed: Collection[str] = (),
        on_notice: OnNotice,
        on_late: Callable[[str, Message], None],
        is_restarted: bool = False,
    ) -> None:
        self._server = server
        self._requests = requests
        self._log = log
        self._subscribed = subscribed
        self._on_notice = on_notice
        self._on_late = on_late
        self.instructions = ""
        """The server's instructions for models."""
        self._ids = count(1)
        self._running = RunningRequests()
        self._rounds = self._make_rounds()
        self._is_restarted = is_restarted
        self._subscription = ChangeSubscription(
            self._send, self._wanted_notices, self._notify_missed_changes, log, self._label, is_restarted=is_restarted
        )
        self._messages = ServerMessages(
            self._running,
            requests,
            notify=lambda message: self.connection.notify(message),
            has_requests=lambda: self.era == "handshake",
            on_notice=on_notice,
            on_confirmed=self._subscription.confirm,
            log=log,
            label=self._label,
        )
        self.revision = LATEST_STATELESS
        self.era: Era = "stateless"
        self.capabilities: Mapping[str, Any] = {}
        self.tools_ttl_s: float | None = None
        """For how long the tools that were listed last hold, if the server says it."""
        self.tools_gap = ""
        """Why tools may be missing in the list that was made last; see `ListedItems`."""
        self.heard = 0
        """The number of messages of the server; a change proves that it is alive."""
        self._looks_for_era = False
        """Whether the first request is `server/discover`, because the era of the server is neither known nor set."""
        self.connection = connect(
            server,
            ConnectionEvents(on_message=self._receive, on_noise=self._messages.count_noise, on_late=self._handle_late_answer, log=log),
        )

    @property
    def tells_changed_tools(self) -> bool:
        """Whether the list of tools stays as it is until the server says that it has changed."""
        return self.era == "handshake" or self._announces("tools", "listChanged")

    @property
    def noise(self) -> int:
        """The number of things that the server sent and that were ignored."""
        return self._messages.noise

    @property
    def why_lost(self) -> str:
        """Why the connection is lost, with the option that may help if the process has ended when it was asked for its era; empty if it is
        not lost."""
        if not self.connection.lost.done():
            return ""
        told = self.connection.lost.result()
        return f"{told} ({_IF_OLDER})" if self._looks_for_era and not self.heard and not self._server.url else told

    # Start and end

    async def start(self, known: Era | None) -> None:
        """Open the connection and negotiate the revision.

        Args:
            known: The era of the server if it was found out before; then it is not asked again.

        Raises:
            McpError: The server cannot be started, or speaks no revision that this client speaks.
        """
        if self._server.problem:
            raise NotSent(self._server.problem, code="cannot_start", retryable=False)
        self._looks_for_era = known is None and self._server.era is None
        await self.connection.open()
        negotiation = Negotiation(
            server=self._server, name=self._label, connection=self.connection, send=self._send, begin_handshake=self._begin_handshake
        )
        agreement = await negotiation.agree(known)
        self.era, self.revision, self.capabilities = agreement.era, agreement.revision, _as_object(agreement.said.get("capabilities"))
        self.instructions = _as_text(agreement.said.get("instructions"))
        self.connection.use(self.revision)
        if self.era == "stateless":
            has_tasks = isinstance(_as_object(self.capabilities.get("extensions")).get(TASKS), dict)
            self._rounds = self._make_rounds(stateless=True, has_tasks=has_tasks)
            self._subscription.open()
        else:
            await self._subscribe_again()
            if self._is_restarted:
                self._notify_missed_changes(resources=True)

    def _make_rounds(self, *, stateless: bool = False, has_tasks: bool = False) -> RequestRounds:
        return RequestRounds(self._server.name, self._exchange, self._requests, self._log, stateless=stateless, has_tasks=has_tasks)

    def _begin_handshake(self) -> Mapping[str, Any]:
        self.era, self.revision = "handshake", LATEST_HANDSHAKE
        return self._requests.capabilities

    async def close(self) -> None:
        self._messages.close()
        self._subscription.close()
        await self.connection.close()

    # Requests

    async def list_tools(self) -> list[Message]:
        """Return the definitions of all tools, as the server sent them.

        Raises:
            McpError: The server does not answer, or its answer is not a list.
        """
        pages: list[Message] = []

        async def page(method: str, params: Mapping[str, Any]) -> Message:
            pages.append(await self.ask(method, params))
            return pages[-1]

        try:
            found = await all_items(page, "tools/list", "tools", self._label, self._log)
            self.tools_ttl_s, self.tools_gap = shortest_ttl_s(pages), found.gap
            return found.items
        except RpcError as error:
            if error.code == messages.METHOD_NOT_FOUND:
                return []
            raise ProtocolError(f"{self._label} did not list its tools: {error.message[:300]} ({error.code}).") from error

    async def list_all(self, method: str, key: str, caller: Caller = _NOBODY) -> list[Message]:
        """Return the items of all pages of a list; see `all_items`."""
        return (await all_items(partial(self.ask, caller=caller), method, key, self._label, self._log)).items

    async def call_tool(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Message:
        """Call a tool and return the result as the server sent it; see `ask`. The caller's client gets the whole response."""
        on_response = caller.client.receive_response if caller.client is not None else None
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, caller, on_response)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller = _NOBODY,
        on_response: Callable[[Message], None] | None = None,
    ) -> Message:
        """Send a request and return the result as the server sent it; see `RequestRounds.result`."""
        return await self._rounds.result(method, params, caller, on_response)

    async def subscribe(self, uri: str, *, ends: bool = False) -> None:
        """Subscribe to changes of a resource, or unsubscribe. The caller has updated `subscribed` before.

        Raises:
            McpError: The server does not answer.
            RpcError: The server refuses.
        """
        if not self._announces("resources", "subscribe"):
            raise RpcError(messages.METHOD_NOT_FOUND, "The server does not say that it has subscriptions.")
        if self.era == "stateless":
            await self._subscription.renew()
        else:
            await self._send("resources/unsubscribe" if ends else "resources/subscribe", {"uri": uri})

    async def _subscribe_again(self) -> None:
        for uri in list(self._subscribed):
            try:
                await self._send("resources/subscribe", {"uri": uri})
            except RpcError as error:
                self._log.warning("%s refused the subscription to %s: %s", self._label, uri, error)

    async def settle(self) -> None:
        """Wait until the server has the answers to what it has asked outside of requests, such as the folders to work in."""
        while answers := self._messages.outside_answers():
            await asyncio.wait(answers)
            with suppress(McpError):
                await self.is_alive()  # messages are read in their order
            await asyncio.sleep(_ADOPTION_S)
            self._messages.forget_answers(answers)

    async def roots_changed(self) -> None:
        """Tell the server that the client's folders have changed, and wait until it has asked for them again, if it does.

        Raises:
            McpError: The connection is lost.
        """
        await self.connection.notify(messages.notification("notifications/roots/list_changed"))
        await self.is_alive()
        await self.settle()

    async def wait_for_end(self) -> None:
        """Wait for the end of a process whose pipe is closed, because it says more than the pipe; for a moment, because it may live on."""
        if not self._server.url:
            await asyncio.wait([self.connection.lost], timeout=_END_S)

    async def is_alive(self) -> None:
        """Ask for an answer of any kind.

        Raises:
            McpError: The connection is lost.
        """
        try:
            await self._send("ping" if self.era == "handshake" else "server/discover", {})
        except (RpcError, ProtocolError):
            return

    async def _send(self, method: str, params: Mapping[str, Any]) -> Message:
        """Send one request of the engine itself and return its result.

        Raises:
            McpError: See `ServerConnection.request`.
            RpcError: The server answered with an error.
        """
        return messages.result_of(await self._exchange(method, params, _NOBODY))

    async def _exchange(self, method: str, params: Mapping[str, Any], caller: Caller) -> Message:
        """Send one request and return its response, which has `result` or `error`."""
        request_id = next(self._ids)
        meta = self._meta(request_id, caller)
        sent = {**params, "_meta": meta} if meta else params
        running = self._running.begin(request_id, caller)
        abandoned = False
        try:
            response = await self.connection.request(messages.request(request_id, method, sent), partial(self._receive, of=running))
        except (asyncio.CancelledError, ConnectionLost):
            abandoned = True
            raise
        finally:
            self._running.end(running, abandoned=abandoned)
            self._messages.cancel_questions(running)
        self.heard += 1
        return response

    def _meta(self, request_id: int, caller: Caller) -> dict[str, Any]:
        client = caller.client
        meta: dict[str, Any] = {} if client is None else {**client.meta}
        if self.era == "stateless":
            capabilities = self._requests.capabilities if client is None else client.capabilities
            if self._rounds.has_tasks:
                capabilities = {**capabilities, "extensions": {**capabilities.get("extensions", {}), TASKS: {}}}
            meta |= request_meta(self.revision, capabilities)
            if client is not None and client.log_level:
                meta[LOG_LEVEL] = client.log_level
        if caller.on_progress is not None or (client is not None and client.wants_progress):
            meta["progressToken"] = request_id
        return meta

    # Messages that the server sends unasked

    def _receive(self, message: Message, of: RunningRequest | None = None) -> None:
        self.heard += 1
        self._messages.handle(message, of)

    def _handle_late_answer(self, request_id: int, message: Message) -> None:
        self._running.record_late_answer(request_id)
        uid = self._running.uid_of(request_id)
        if uid:
            self._on_late(uid, message)

    def _wanted_notices(self) -> dict[str, Any]:
        """Return the notices to subscribe to: of all lists that the server announces changes of, and of the subscribed resources."""
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in _LISTS if self._announces(kind, "listChanged")}
        if self._subscribed and self._announces("resources", "subscribe"):
            wanted["resourceSubscriptions"] = list(self._subscribed)
        return wanted

    def _notify_missed_changes(self, resources: bool) -> None:
        """Notify of the changes that may have been missed: of all lists, and if `resources` is set, of the subscribed resources."""
        for kind in _LISTS:
            if self._announces(kind, "listChanged"):
                self._on_notice(f"notifications/{kind}/list_changed", {})
        for uri in list(self._subscribed) if resources else ():
            self._on_notice(RESOURCE_UPDATED, {"uri": uri})

    def _announces(self, kind: str, what: str) -> bool:
        return _as_object(self.capabilities.get(kind)).get(what) is True

    @property
    def _label(self) -> str:
        return f"The MCP server '{self._server.name}'"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _as_object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
