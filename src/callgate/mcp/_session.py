"""One negotiated session with a server: what is asked of it, and what it asks and reports in return.

A session finds out which revision the server speaks, and adds to each request what that revision needs. It passes on the progress of calls,
answers the server's own requests, and follows the pages of a list. It does not know how messages are carried, and never sends a request
twice.

Sources: MCP 2025-11-25, Lifecycle, Utilities; MCP 2026-07-28, Multi Round-Trip Requests, Subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from itertools import count
from typing import Any, TypeVar, cast

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate.mcp import _messages as messages
from callgate.mcp._connection import ConnectionEvents, ConnectionLost, Message, NotSent, ProtocolError, ServerConnection
from callgate.mcp._messages import RpcError
from callgate.mcp._pages import all_items
from callgate.mcp._revisions import (
    CLIENT_INFO,
    HANDSHAKE_REVISIONS,
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    STATELESS_REVISIONS,
    UNSUPPORTED_REVISION,
    Era,
    discovered,
    request_meta,
    supported_by_error,
)
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._tool_subscription import ToolSubscription
from callgate.mcp.server_config import McpServer

__all__ = ["Connect", "OnProgress", "Session"]

Connect = Callable[[McpServer, ConnectionEvents], ServerConnection]
OnProgress = Callable[[str], None]
T = TypeVar("T")

_PROBE_S = 5.0
"""Seconds of silence after which a handshake of the older era is begun as well."""
_MOST_ROUNDS = 10
"""How often a server may ask for input during one request."""
_KEPT_IDS = 1_000
_LOGGED_NOISE = 5


class _Agreement(Struct, frozen=True, kw_only=True):
    """What a session has agreed on with its server."""

    era: Era
    revision: str
    capabilities: Mapping[str, Any]


class Session:
    """A session on a connection of its own.

    Args:
        on_changed: Called when the server says that its tools have changed.
        on_late: Called with the uid of a call that has ended, and the answer that came after that.
    """

    def __init__(
        self,
        server: McpServer,
        connect: Connect,
        requests: ServerRequests,
        log: RedactedLog,
        *,
        on_changed: Callable[[], None],
        on_late: Callable[[str, Message], None],
    ) -> None:
        self._server = server
        self._requests = requests
        self._log = log
        self._on_changed = on_changed
        self._on_late = on_late
        self._ids = count(1)
        self._progress: dict[int, OnProgress] = {}
        """What reports the progress of each running call, by its token, which is the id of its request."""
        self._uids: dict[int, str] = {}
        """The uids of the latest calls, by the id of the request."""
        self._answering: dict[object, asyncio.Task[None]] = {}
        self._subscription = ToolSubscription(self._send, on_changed, log, self._named)
        self._listening: asyncio.Task[None] | None = None
        self.revision = LATEST_STATELESS
        self.era: Era = "stateless"
        self.capabilities: Mapping[str, Any] = {}
        self.noise = 0
        """The number of things that the server sent and that were ignored."""
        self.heard = 0
        """The number of messages of the server; a change proves that it is alive."""
        self.connection = connect(
            server, ConnectionEvents(on_message=self._received, on_noise=self._noted, on_late=self._came_late, log=log)
        )

    # Start and end

    async def start(self, known: Era | None) -> None:
        """Open the connection and negotiate the revision.

        Args:
            known: The era of the server if it was found out before; then it is not asked again.

        Raises:
            McpError: The server cannot be started, or speaks no revision that this client speaks.
        """
        if self._server.problem:
            raise NotSent(self._server.problem, code="cannot_start")
        await self.connection.open()
        agreement = await self._negotiate(known)
        self.era, self.revision, self.capabilities = agreement.era, agreement.revision, agreement.capabilities
        self.connection.use(self.revision)
        if self.era == "stateless" and self._announces_changes():
            self._listening = asyncio.get_running_loop().create_task(self._subscription.keep_open(self.connection.lost), context=Context())

    async def _negotiate(self, known: Era | None) -> _Agreement:
        """Ask whether the server is of the stateless era, and begin a handshake if it is not or says nothing for a while.

        The first valid answer counts, because a server may need longer for its start than the question is waited for.

        Raises:
            McpError: The server refuses both.
        """
        loop = asyncio.get_running_loop()
        asked = [] if known == "handshake" else [loop.create_task(self._discover())]
        try:
            if asked:
                await asyncio.wait(asked, timeout=_PROBE_S)
                if asked[0].done() and (agreement := asked[0].result()):
                    return agreement
            asked.append(loop.create_task(self._initialize()))
            return await _first_agreement(asked)
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _discover(self) -> _Agreement | None:
        """Return what a server of the stateless era agrees to; None if it is of the other era."""
        try:
            result = await self._send("server/discover", {})
        except RpcError as error:
            supported = supported_by_error(error.data) if error.code == UNSUPPORTED_REVISION else ()
            return _stateless(supported, {})
        except ProtocolError:
            return None
        return _stateless(discovered(result) or (), _object(result.get("capabilities")))

    async def _initialize(self) -> _Agreement:
        self.era, self.revision = "handshake", LATEST_HANDSHAKE
        params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": self._requests.capabilities, "clientInfo": CLIENT_INFO}
        try:
            result = await self._send("initialize", params)
        except RpcError as error:
            raise ProtocolError(f"{self._named} refused to start a session: {error.message[:300]} ({error.code}).") from error
        revision = result.get("protocolVersion")
        if revision not in HANDSHAKE_REVISIONS:
            raise ProtocolError(
                f"{self._named} speaks revision {revision!r:.40} of MCP; this client speaks {', '.join(HANDSHAKE_REVISIONS)} and"
                f" {', '.join(STATELESS_REVISIONS)}. Update one of them."
            )
        self.connection.use(revision)
        await self.connection.notify(messages.notification("notifications/initialized"))
        return _Agreement(era="handshake", revision=revision, capabilities=_object(result.get("capabilities")))

    async def close(self) -> None:
        for task in list(self._answering.values()):
            task.cancel()
        await self.connection.close()
        if self._listening is not None:
            self._listening.cancel()

    # Requests

    async def list_tools(self) -> list[Message]:
        """Return the definitions of all tools, as the server sent them.

        Raises:
            McpError: The server does not answer, or its answer is no list.
        """
        try:
            return await self.list_all("tools/list", "tools")
        except RpcError as error:
            if error.code == messages.METHOD_NOT_FOUND:
                return []
            raise ProtocolError(f"{self._named} did not list its tools: {error.message[:300]} ({error.code}).") from error

    async def list_all(self, method: str, key: str) -> list[Message]:
        """Return the items of all pages of a list; see `all_items`."""
        return await all_items(self._send, method, key, self._named, self._log)

    async def call_tool(self, name: str, arguments: Mapping[str, Any], uid: str, on_progress: OnProgress) -> Message:
        """Call a tool and return the result as the server sent it; see `ask`."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, uid=uid, on_progress=on_progress)

    async def ask(self, method: str, params: Mapping[str, Any], *, uid: str = "", on_progress: OnProgress | None = None) -> Message:
        """Send a request and return the result as the server sent it.

        If the server asks for input, it is given, and the same request is continued, as the protocol says.

        Raises:
            McpError: See `ServerConnection.request`.
            RpcError: The server answered with an error.
        """
        given = params
        for _ in range(_MOST_ROUNDS + 1):
            try:
                result = await self._send(method, given, uid=uid, on_progress=on_progress)
            except NotSent as error:
                if given is params:
                    raise
                raise ConnectionLost(f"{self._named} asked for input, which could not be sent: {error}") from error
            kind = result.get("resultType", "complete")
            if kind == "complete":
                return result
            if kind != "input_required" or self.era != "stateless":
                raise ProtocolError(f"{self._named} answered with a result of the unknown type {kind!r:.40}.")
            given = {**params, **await self._input(result)}
        raise ProtocolError(f"{self._named} asked for input more than {_MOST_ROUNDS} times during one request.")

    async def _input(self, result: Message) -> dict[str, Any]:
        """Return what continues a call, after which the server has asked for input."""
        asked, state = result.get("inputRequests"), result.get("requestState")
        if not (asked is None or isinstance(asked, dict)) or not (state is None or isinstance(state, str)) or not (asked or state):
            raise ProtocolError(f"{self._named} asked for input in a form that cannot be read.")
        answers: dict[str, Any] = {}
        for key, request in (asked or {}).items():
            if not isinstance(request, dict):
                raise ProtocolError(f"{self._named} asked for input in a form that cannot be read.")
            try:
                answers[key] = await self._requests.answer(request.get("method"), request.get("params", {}))
            except RpcError as error:
                raise ProtocolError(
                    f"{self._named} asked for input that nobody here gives ({str(request.get('method'))[:60]}): {error.message}"
                ) from error
        more: dict[str, Any] = {"inputResponses": answers} if answers else {}
        return more if state is None else more | {"requestState": state}

    async def is_alive(self) -> None:
        """Ask for an answer of any kind.

        Raises:
            McpError: The connection is lost.
        """
        try:
            await self._send("ping" if self.era == "handshake" else "server/discover", {})
        except (RpcError, ProtocolError):
            return

    async def _send(self, method: str, params: Mapping[str, Any], *, uid: str = "", on_progress: OnProgress | None = None) -> Message:
        """Send one request and return its result.

        Raises:
            McpError: See `ServerConnection.request`.
            RpcError: The server answered with an error.
        """
        number = next(self._ids)
        meta = request_meta(self.revision, self._requests.capabilities) if self.era == "stateless" else {}
        if on_progress is not None:
            meta["progressToken"] = number
            self._progress[number] = on_progress
            self._remember(number, uid)
        sent = {**params, "_meta": meta} if meta else params
        try:
            response = await self.connection.request(messages.request(number, method, sent), self._received)
        finally:
            self._progress.pop(number, None)
        self.heard += 1
        error = response.get("error")
        if error is not None:
            raise RpcError(error["code"], error["message"], error.get("data"))
        result: Message = response["result"]
        return result

    def _remember(self, number: int, uid: str) -> None:
        self._uids[number] = uid
        if len(self._uids) > _KEPT_IDS:
            del self._uids[next(iter(self._uids))]

    # What the server sends of its own

    def _received(self, message: Message) -> None:
        """Take a notification or a request of the server."""
        self.heard += 1
        method, params = message.get("method"), _object(message.get("params"))
        if "id" in message:
            self._asked(message["id"], method, message.get("params", {}))
        elif method == "notifications/progress":
            self._progressed(params)
        elif method == "notifications/tools/list_changed":
            self._on_changed()
        elif method == "notifications/subscriptions/acknowledged":
            self._subscription.confirm()
        elif method == "notifications/message":
            self._log.debug("%s logs: %s", self._named, str(params.get("data"))[:2_000])
        elif method == "notifications/cancelled":
            task = self._answering.get(_hashable(params.get("requestId")))
            if task is not None:
                task.cancel()

    def _progressed(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        report = self._progress.get(token) if type(token) is int else None
        if report is None:
            return
        done, total, text = (params.get(key) for key in ("progress", "total", "message"))
        amount = f"{done:.15g}" + (f"/{total:.15g}" if _is_number(total) else "") if _is_number(done) else ""
        report(": ".join(part for part in (amount, text) if isinstance(part, str) and part))

    def _asked(self, number: object, method: object, params: object) -> None:
        if type(number) not in (int, str):
            self._noted("a request without a valid id")
            return
        if self.era == "stateless" and method != "ping":
            refusal = RpcError(messages.METHOD_NOT_FOUND, "Servers send no requests in this revision.")
            self._reply(messages.error_answer(number, refusal))
            return
        task = asyncio.get_running_loop().create_task(self._answer(number, method, params), context=Context())
        self._answering[number] = task
        task.add_done_callback(lambda _: self._answering.pop(number, None))

    async def _answer(self, number: object, method: object, params: object) -> None:
        try:
            reply = messages.answer(number, await self._requests.answer(method, params))
        except RpcError as error:
            reply = messages.error_answer(number, error)
        await self.connection.notify(reply)

    def _reply(self, message: Message) -> None:
        task = asyncio.get_running_loop().create_task(self.connection.notify(message), context=Context())
        self._answering[task] = task
        task.add_done_callback(lambda _: self._answering.pop(task, None))

    def _noted(self, text: str) -> None:
        self.noise += 1
        if self.noise <= _LOGGED_NOISE:
            self._log.warning("%s sent %s; it is ignored", self._named, text)

    def _came_late(self, number: int, message: Message) -> None:
        uid = self._uids.get(number)
        if uid:
            self._on_late(uid, message)

    def _announces_changes(self) -> bool:
        return _object(self.capabilities.get("tools")).get("listChanged") is True

    @property
    def _named(self) -> str:
        return f"The MCP server '{self._server.name}'"


def _stateless(supported: Sequence[str], capabilities: Mapping[str, Any]) -> _Agreement | None:
    """Return the agreement on the latest revision of the stateless era among those that a server supports."""
    found = [one for one in STATELESS_REVISIONS if one in supported]
    return _Agreement(era="stateless", revision=found[-1], capabilities=capabilities) if found else None


async def _first_agreement(asked: Sequence[asyncio.Task[Any]]) -> _Agreement:
    """Return the first agreement; if there is none, raise the error of the last task."""
    waiting = set(asked)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        agreed = [one.result() for one in reversed(asked) if one in done and one.exception() is None and one.result() is not None]
        if agreed:
            return cast("_Agreement", agreed[0])
    return cast("_Agreement", asked[-1].result())


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _hashable(value: object) -> object:
    return value if isinstance(value, (int, str)) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
