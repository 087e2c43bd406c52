"""The front for clients of the stateless era, revision 2026-07-28.

Each request says in `_meta` which revision it uses and what its client can do. What a server asks during a request is returned as its
result, and the client continues the request with the answers; `_parked_requests.py` keeps it in between. The question whether a call may
run ends the request without keeping anything: the call is suspended and on record, and the sealed state names it.

Sources: MCP 2026-07-28, Versioning; Multi Round-Trip Requests; Subscriptions; `server/discover`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from callgate.gateway._client_calls import PROTOCOL_PREFIX, CallInQuestion, Client, ClientCall, Continued
from callgate.gateway._exchange import Exchange
from callgate.gateway._front_parts import FrontParts, object_of, params_of
from callgate.gateway._parked_requests import MultiRoundRequest, answers_of
from callgate.gateway._request_states import ApprovalState, request_digest
from callgate.gateway._request_tasks import RequestTasks
from callgate.gateway._token_expiry import ended_at_expiry
from callgate.gateway._watched_resources import WatchedResources
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, notification
from callgate.mcp._revisions import STATELESS_REVISIONS, UNSUPPORTED_REVISION

__all__ = ["StatelessFront"]

_REVISION = f"{PROTOCOL_PREFIX}protocolVersion"
_CAPABILITIES = f"{PROTOCOL_PREFIX}clientCapabilities"
_CLIENT_INFO = f"{PROTOCOL_PREFIX}clientInfo"
_LOG_LEVEL = f"{PROTOCOL_PREFIX}logLevel"
_SERVER_INFO = f"{PROTOCOL_PREFIX}serverInfo"
_SUBSCRIPTION = f"{PROTOCOL_PREFIX}subscriptionId"

_OWN = frozenset({"server/discover", "subscriptions/listen"})
_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests whose answer may need input of the client, if it can give any."""
_CACHEABLE = frozenset({"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})
_LISTS = {f"{kind}ListChanged": f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
_APPROVAL = "approval"
"""The name of the question whether a call may run."""
_MOST_WATCHED = 1_000


class StatelessFront:
    """The requests of one client, or of one principal's clients. Implements `Front`."""

    def __init__(self, parts: FrontParts, principal: Principal) -> None:
        self._parts = parts
        self._principal = principal
        self._running = RequestTasks()

    # Front

    async def request(self, message: Mapping[str, Any], exchange: Exchange) -> Message | None:
        answered = self._parts.metrics.request("stateless", self._result, message, exchange)
        return await self._running.run(message["id"], answered)

    def notification(self, message: Mapping[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            self._running.cancel(message)

    def response(self, message: Mapping[str, Any]) -> None:
        """Do nothing: clients of this era are sent no requests."""

    async def close(self) -> None:
        await self._running.close()

    # Requests

    async def _result(self, message: Mapping[str, Any], exchange: Exchange) -> Message:
        method = message["method"]
        if method not in _OWN and not self._parts.methods.has(method):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        params = params_of(message)
        client = self._client(params)
        if method == "server/discover":
            result = self._discovered()
        elif method == "subscriptions/listen":
            result = await self._listen(message["id"], params, exchange)
        elif method in _MAY_ASK and (client.answers_requests or "requestState" in params):
            result = await self._asking(method, client, params, exchange)
        else:
            call = ClientCall(
                client, self._parts.session_key(self._principal), params, exchange, _cannot_ask, redaction=self._parts.redaction
            )
            result = await self._parts.methods.answer(method, call, params)
        return self._stamped(method, result)

    def _client(self, params: Mapping[str, Any]) -> Client:
        """Return the client of a request.

        Raises:
            RpcError: The request does not say what it must, or its revision is not known.
        """
        meta = params.get("_meta")
        if not isinstance(meta, dict) or _REVISION not in meta or _CAPABILITIES not in meta:
            raise RpcError(INVALID_PARAMS, f"The params need _meta with '{_REVISION}' and '{_CAPABILITIES}'.")
        revision, capabilities, level = meta[_REVISION], meta[_CAPABILITIES], meta.get(_LOG_LEVEL, "")
        if not isinstance(revision, str) or not isinstance(capabilities, dict):
            raise RpcError(INVALID_PARAMS, f"'{_REVISION}' must be a text and '{_CAPABILITIES}' an object.")
        if revision not in STATELESS_REVISIONS:
            told = {"supported": list(STATELESS_REVISIONS), "requested": revision[:100]}
            raise RpcError(UNSUPPORTED_REVISION, f"The revision {revision[:100]} is not supported.", told)
        return Client(
            principal=self._principal,
            era="stateless",
            revision=revision,
            capabilities=capabilities,
            info=object_of(meta.get(_CLIENT_INFO)),
            run=self._parts.runs.of(self._principal.name),
            log_level=level if isinstance(level, str) else "",
        )

    def _discovered(self) -> Message:
        result: Message = {
            "supportedVersions": list(STATELESS_REVISIONS),
            "capabilities": self._parts.methods.capabilities(self._principal),
        }
        return result | ({"instructions": self._parts.instructions} if self._parts.instructions else {})

    async def _asking(self, method: str, client: Client, params: Mapping[str, Any], exchange: Exchange) -> Message:
        """Answer a request, or a continuation of one, with its result or with what the client is to be asked."""
        request = self._continued(method, client, params, exchange)
        result = await request.result_or_questions()
        if result is not None:
            return result
        return _input_required(request.questions(), self._parts.parked.park(request))

    def _continued(self, method: str, client: Client, params: Mapping[str, Any], exchange: Exchange) -> MultiRoundRequest:
        """Return the request that the params continue, or a new one.

        Raises:
            RpcError: The state or the answers of the client are not valid.
        """
        digest = request_digest(method, params)
        if "requestState" not in params:
            return self._started(method, client, params, exchange, digest, None)
        state = self._parts.states.opened(params["requestState"], self._principal.name, digest)
        if isinstance(state, ApprovalState):
            answer = answers_of(params).get(_APPROVAL)
            return self._started(method, client, params, exchange, digest, Continued(state.question, answer))
        request = self._parts.parked.take(state)
        request.call.exchange = exchange
        request.take_answers(params.get("inputResponses"))
        return request

    def _started(
        self, method: str, client: Client, params: Mapping[str, Any], exchange: Exchange, digest: str, continued: Continued | None
    ) -> MultiRoundRequest:
        def ask_later(question: CallInQuestion, form: Mapping[str, Any]) -> Message:
            state = self._parts.states.sealed(ApprovalState(self._principal.name, digest, question))
            return _input_required({_APPROVAL: {"method": "elicitation/create", "params": form}}, state)

        request = MultiRoundRequest(self._principal.name, digest)
        key = self._parts.session_key(self._principal)
        request.call = ClientCall(
            client, key, params, exchange, request.ask, redaction=self._parts.redaction, ask_later=ask_later, continued=continued
        )
        if continued is None:
            request.take_answers(params.get("inputResponses"))
        request.start(self._parts.methods.answer(method, request.call, params))
        return request

    def _stamped(self, method: str, result: Message) -> Message:
        """Return a result with what each result of this era has."""
        meta = result.get("_meta")
        told = meta if isinstance(meta, dict) else {}
        stamped: Message = {"resultType": "complete", **result, "_meta": {_SERVER_INFO: self._parts.info, **told}}
        if method in _CACHEABLE and stamped["resultType"] == "complete":
            stamped.setdefault("ttlMs", 0)
            stamped.setdefault("cacheScope", "private")
        return stamped

    # Subscriptions

    async def _listen(self, number: object, params: Mapping[str, Any], exchange: Exchange) -> Message:
        """Tell the client of changes until it goes away or the gateway closes."""
        wanted, uris = _wanted(params)
        meta = {_SUBSCRIPTION: number}
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(method: str, uri: str) -> None:
            if (uri in uris) if uri else (method in wanted):
                sent = exchange.send(notification(method, {"uri": uri, "_meta": meta} if uri else {"_meta": meta}))
                if not sent:
                    end()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        told: dict[str, Any] = {key: True for key, method in _LISTS.items() if method in wanted}
        if uris:
            told["resourceSubscriptions"] = sorted(uris)
        exchange.send(notification("notifications/subscriptions/acknowledged", {"notifications": told, "_meta": meta}))
        stop = self._parts.changes.listen(tell, ended)
        watched = WatchedResources(self._parts.content, self._principal)
        try:
            for uri in sorted(uris):
                await watched.add(uri)
            with ended_at_expiry(self._principal, end):
                await ended
        finally:
            stop()
            await watched.close()
        return {"_meta": meta}


def _wanted(params: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the notifications about lists, and the URIs of resources, that a client subscribes to.

    Raises:
        RpcError: The params are not valid.
    """
    asked = params.get("notifications")
    if not isinstance(asked, dict):
        raise RpcError(INVALID_PARAMS, "subscriptions/listen needs notifications, an object.")
    uris = asked.get("resourceSubscriptions") or []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris) or len(uris) > _MOST_WATCHED:
        raise RpcError(INVALID_PARAMS, f"resourceSubscriptions must be a list of at most {_MOST_WATCHED} URIs.")
    return frozenset(method for key, method in _LISTS.items() if asked.get(key) is True), frozenset(uris)


def _input_required(questions: Mapping[str, Message], state: str) -> Message:
    return {"resultType": "input_required", "inputRequests": questions, "requestState": state}


async def _cannot_ask(method: str, params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    raise RpcError(METHOD_NOT_FOUND, "The client cannot be asked during this request.")
