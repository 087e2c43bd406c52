"""The front for clients of the handshake era, up to revision 2025-11-25: one session of one client.

The client says in `initialize` what it can do. What a server asks during a call is sent to it as a request, on the stream of that call, and
its response comes back as a message of its own.

Sources: MCP 2025-11-25, Lifecycle; Cancellation; Progress; Elicitation; Sampling; Roots; Logging.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Context
from functools import partial
from itertools import count
from typing import Any

from callgate._json import exceeds
from callgate.gateway._client_calls import LOG_LEVELS, Client, ClientCall, result_of
from callgate.gateway._exchange import Exchange
from callgate.gateway._fronts.front_parts import FrontParts, object_of, params_of
from callgate.gateway._fronts.handshake_results import adapt_result
from callgate.gateway._fronts.url_elicitations import UrlElicitations
from callgate.gateway._requests.cancellable_requests import CancellableRequests
from callgate.gateway._server_features.watched_resources import WatchedResources
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RpcError, notification
from callgate.mcp._messages import request as rpc_request
from callgate.mcp._revisions import HANDSHAKE_REVISIONS, LATEST_HANDSHAKE
from callgate.mcp._server_messages import RESOURCE_UPDATED

__all__ = ["HandshakeSession"]

_MOST_DECLARED_BYTES = 65_536
"""How much of what a client declares in `initialize` is kept with its session."""


class HandshakeSession:
    """One session of a client. Implements `SessionFront`.

    Args:
        events: Where messages go that belong to no request. None: they are not sent.
    """

    def __init__(self, parts: FrontParts, principal: Principal, events: Exchange | None = None) -> None:
        self._parts = parts
        self._events = events
        self.client = Client(
            principal=principal, era="handshake", revision=LATEST_HANDSHAKE, capabilities={}, info={}, run="", log_level="debug"
        )
        self._running = CancellableRequests(self._result_of_ended)
        self._tasks: set[asyncio.Task[None]] = set()
        """Tell servers that the folders of the client have changed."""
        self._asked: dict[object, asyncio.Future[Mapping[str, Any]]] = {}
        self._ids = count(1)
        self._watched = WatchedResources(parts.content, partial(self._tell, RESOURCE_UPDATED))
        self._url_elicitations = UrlElicitations()
        self._stop_listening = parts.changes.listen(self._tell_change)

    # Front

    async def request(self, message: Mapping[str, Any], exchange: Exchange) -> Message | None:
        answered = self._parts.metrics.request("handshake", self._result, message, exchange)
        return await self._running.run(message["id"], answered)

    def notification(self, message: Mapping[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            self._running.cancel(message)
        elif message["method"] == "notifications/roots/list_changed" and self._events is not None and self.client.can_answer("roots/list"):
            notify = self._parts.content.to(self.client.principal).roots_changed(self._call({}, self._events))
            task = asyncio.get_running_loop().create_task(notify, context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def response(self, message: Mapping[str, Any]) -> None:
        request_id = message.get("id")
        waiting = self._asked.get(request_id) if isinstance(request_id, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def use_principal(self, principal: Principal) -> None:
        self.client.principal = principal

    async def close(self) -> None:
        self._stop_listening()
        for task in self._tasks:
            task.cancel()
        await self._running.close()
        await self._watched.close()

    # Requests

    async def _result(self, message: Mapping[str, Any], exchange: Exchange) -> Message:
        method, params = message["method"], params_of(message)
        match method:
            case "initialize":
                return await self._initialize(params)
            case "ping":
                return {}
            case "logging/setLevel":
                return self._set_level(params)
            case "resources/subscribe" | "resources/unsubscribe":
                return await self._watch(method, params, self._call(params, exchange, message["id"]))
        if not self.client.run:
            raise RpcError(INVALID_PARAMS, "The session has not been initialized. Send initialize first, or name a revision in each _meta.")
        call = self._call(params, exchange, message["id"])
        self._running.note_call(message["id"], call)
        try:
            return adapt_result(method, await self._parts.methods.answer(method, call, params))
        except RpcError as error:
            self._url_elicitations.note_error(error)
            raise

    async def _result_of_ended(self, call: ClientCall) -> Message | None:
        result = await self._parts.calls.result_of_ended(call)
        return None if result is None else adapt_result("tools/call", result)

    async def _initialize(self, params: Mapping[str, Any]) -> Message:
        if self.client.run:
            raise RpcError(INVALID_REQUEST, "The session is initialized already.")
        wanted, capabilities = params.get("protocolVersion"), params.get("capabilities", {})
        if not isinstance(wanted, str) or not isinstance(capabilities, dict):
            raise RpcError(INVALID_PARAMS, "initialize needs protocolVersion, a text, and capabilities, an object.")
        info = object_of(params.get("clientInfo"))
        if exceeds([capabilities, info], _MOST_DECLARED_BYTES):
            text = f"capabilities and clientInfo together have more than {_MOST_DECLARED_BYTES} bytes. Declare less."
            raise RpcError(INVALID_PARAMS, text)
        client = self.client
        client.revision = wanted if wanted in HANDSHAKE_REVISIONS else LATEST_HANDSHAKE
        client.capabilities, client.info = capabilities, info
        client.run = self._parts.runs.new()
        instructions = await self._parts.instructions(client.principal)
        result: Message = {
            "protocolVersion": client.revision,
            "capabilities": self._parts.methods.capabilities(self.client.principal),
            "serverInfo": self._parts.info,
        }
        return result | ({"instructions": instructions} if instructions else {})

    def _set_level(self, params: Mapping[str, Any]) -> Message:
        level = params.get("level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level {level!r:.80}; the levels are {', '.join(sorted(LOG_LEVELS))}.")
        self.client.log_level = level
        return {}

    async def _watch(self, method: str, params: Mapping[str, Any], call: ClientCall) -> Message:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, f"{method} needs a uri.")
        if method == "resources/subscribe":
            await self._watched.add(uri, call)
        else:
            await self._watched.remove(uri)
        return {}

    def _call(self, params: Mapping[str, Any], exchange: Exchange, request_id: object = None) -> ClientCall:
        return ClientCall(self.client, params, exchange, self._ask, redaction=self._parts.redaction, request_id=request_id)

    # What the client is asked and told

    async def _ask(self, method: str, params: Mapping[str, Any], name: str, exchange: Exchange) -> Mapping[str, Any]:
        """Send a request to the client and return its result.

        Raises:
            RpcError: The client answers with an error, not in time, or cannot be reached.
        """
        if method == "elicitation/create":
            params = self._url_elicitations.note(params)
        request_id = f"callgate-{next(self._ids)}"
        waiting: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[request_id] = waiting
        try:
            if not exchange.send(rpc_request(request_id, method, params)):
                raise RpcError(INTERNAL_ERROR, "The client can no longer be asked.")
            async with asyncio.timeout(self._parts.limits.answer_s):
                return result_of(await waiting)
        except TimeoutError:
            exchange.send(
                notification("notifications/cancelled", {"requestId": request_id, "reason": "the answer is not waited for any longer"})
            )
            raise RpcError(INTERNAL_ERROR, f"The client did not answer within {self._parts.limits.answer_s:g} s.") from None
        except asyncio.CancelledError:
            exchange.send(notification("notifications/cancelled", {"requestId": request_id, "reason": "the call has ended"}))
            raise
        finally:
            del self._asked[request_id]

    def _tell_change(self, method: str, params: Mapping[str, Any]) -> None:
        if not params or params.get("uri") in self._watched or params.get("elicitationId") in self._url_elicitations:
            self._tell(method, params)

    def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        if self._events is not None and self.client.run:
            self._events.send(notification(method, params or None))
