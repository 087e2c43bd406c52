"""One client as the gateway knows it, and one of its calls as the upstream server knows it.

`ClientCall` implements `CallingClient`: it takes what the server sends during the call to the client, in the form of the client's era.
How a client is asked differs between the eras, so a call is given a function for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from msgspec import Struct

from callgate.gateway._exchange import Exchange
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._extensions import TASKS, passed_extensions
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, notification, response_fault
from callgate.mcp._revisions import Era
from callgate.mcp.calling_client import CAPABILITY_OF

__all__ = [
    "LOG_LEVELS",
    "PROTOCOL_PREFIX",
    "Ask",
    "AskLater",
    "CallInQuestion",
    "CallStatus",
    "Client",
    "ClientCall",
    "Continued",
    "RecordedCall",
    "result_of",
]

Ask = Callable[[str, Mapping[str, Any], str, Exchange], Awaitable[Mapping[str, Any]]]
"""Asks the client: the method and the `params` of a request, the server's name of it, and the way to the client. Raises `RpcError`."""

AskLater = Callable[["CallInQuestion", Mapping[str, Any]], Message]
"""Returns the result that ends a request with a question about its call, given the `params` of `elicitation/create`."""

PROTOCOL_PREFIX = "io.modelcontextprotocol/"
"""The keys of `_meta` that MCP defines for one hop begin with it, except `progressToken`."""

_ANSWERING = frozenset(CAPABILITY_OF.values())
"""The capabilities of clients that answer requests of servers."""
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages, the least important first."""


class Client(Struct, kw_only=True, eq=False):
    """An MCP client of the gateway."""

    principal: Principal
    era: Era
    revision: str
    capabilities: Mapping[str, Any]
    """As the client declared them."""
    info: Mapping[str, Any]
    """The client's `name`, `version` and so on. Untrusted."""
    run: str
    """The run of the journal that has its calls."""
    log_level: str = ""
    """The least level of log messages that the client wants; empty: none."""

    def can_answer(self, method: str) -> bool:
        """Return whether the client has declared that it answers this request."""
        return isinstance(self.capabilities.get(CAPABILITY_OF.get(method, "")), dict)

    @property
    def elicitation_modes(self) -> tuple[str, ...]:
        """How the client can ask its user. One that declares no mode shows forms."""
        declared = self.capabilities.get("elicitation")
        if not isinstance(declared, dict):
            return ()
        return tuple(mode for mode in ("form", "url") if mode in declared) or ("form",)

    @property
    def samples_with_tools(self) -> bool:
        sampling = self.capabilities.get("sampling")
        return isinstance(sampling, dict) and isinstance(sampling.get("tools"), dict)

    @property
    def answers_requests(self) -> bool:
        """Whether the client has declared that it answers any request."""
        return not _ANSWERING.isdisjoint(self.capabilities)

    @property
    def takes_tasks(self) -> bool:
        """Whether the client has declared that a call of it may go on as a task."""
        extensions = self.capabilities.get("extensions")
        return self.era == "stateless" and isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)

    @property
    def can_approve(self) -> bool:
        """Whether the client can show its user a form, and may answer the questions about its own calls."""
        return "form" in self.elicitation_modes and self.principal.approves

    def wants_log(self, params: Mapping[str, Any]) -> bool:
        """Return whether the client wants a log message with these `params`."""
        level = params.get("level")
        if self.log_level not in LOG_LEVELS or level not in LOG_LEVELS:
            return False
        return LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.log_level)


class CallInQuestion(Struct, frozen=True):
    """Names a call that is suspended until a human has decided about it, so that it can be submitted again."""

    call: str
    """The id of the call."""
    run: str
    approval: str


class RecordedCall(Struct, frozen=True):
    """Names a call that another process has submitted, or this one before, so that it can be submitted again."""

    call: str
    run: str
    whole: bool = True
    """Whether its arguments are on record, so that it can be submitted again if it has not ended."""
    server: str = ""
    """The server that had its tool; empty if none had, or if it is not known."""


class Continued(Struct, frozen=True):
    """A request that continues an earlier one, which ended with a question about its call."""

    question: CallInQuestion
    answer: Mapping[str, Any] | None
    """The client's result of `elicitation/create`; None if it has sent none."""


class CallStatus(Struct):
    """How far the engine's call of a request has come."""

    is_wanted: bool = False
    """Whether the request is for a new call, or for one that is continued. It has not run as long as there is no `call_id`."""
    call_id: str = ""
    """The id of the call, as soon as it is known which one it is."""
    waits_for: str = ""
    """What the call waits for that is neither its tool nor its client, as sentences; empty if nothing."""
    uid: str = ""
    """The engine's id of the call, as soon as it has a result."""
    is_unrecorded: bool = False
    """Whether the call has not run, because it could not be recorded here."""
    is_replayed: bool = False
    """Whether the result is that of another request, which has made the same call and started its tool."""


class ClientCall:
    """A request of a client that upstream servers take part in. Implements `CallingClient`.

    Args:
        params: The params of the request.
        exchange: The way back to the client. Changes if the client continues the request with another one.
        ask: Asks the client.
        redaction: Removes secrets from what servers send to the client.
        request_id: The id of the request; None if no client has made it.
        ask_later: Ends the request with the question whether its call may run. None: the question is asked with `ask`.
        continued: The earlier request that this one continues; None if it continues none.
        resumed: The call to submit again; None: a new one.
        may_become_task: Whether the client need not wait for the result.
    """

    def __init__(
        self,
        client: Client,
        params: Mapping[str, Any],
        exchange: Exchange,
        ask: Ask,
        *,
        redaction: ClientRedaction,
        request_id: object = None,
        ask_later: AskLater | None = None,
        continued: Continued | None = None,
        resumed: RecordedCall | None = None,
        may_become_task: bool = False,
    ) -> None:
        self.client = client
        self.key = client.principal.session_key
        self.request_id = request_id
        self._clean = redaction.clean
        self.exchange = exchange
        self._ask = ask
        self.ask_later = ask_later
        self.continued = continued
        self.resumed = resumed
        self.may_become_task = may_become_task
        self.status = CallStatus()
        self.while_asking: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        """Entered while the client is asked, which may take long, so that the call holds no permit meanwhile."""
        given = _meta_of(params)
        self._progress_token = _progress_token(params)
        self.counts_progress = False
        """Whether the notifications of progress are numbered here, because the tool does not belong to an MCP server."""
        self._reported = 0
        self.meta = {name: value for name, value in given.items() if name != "progressToken" and not name.startswith(PROTOCOL_PREFIX)}
        self.capabilities = {name: value for name, value in client.capabilities.items() if name in _ANSWERING}
        if extensions := passed_extensions(client.capabilities):
            self.capabilities["extensions"] = extensions
        self.on_resource_updated: Callable[[Mapping[str, Any]], None] | None = None
        """Takes what servers say of a changed resource; set for a request that subscribes to one."""
        self.response: Mapping[str, Any] | None = None
        """The server's latest response to the call; None if no server has answered it."""

    def continue_with(self, params: Mapping[str, Any], exchange: Exchange) -> None:
        """Send what follows by another request of the client, which continues the call and has a progress token of its own."""
        self.exchange = exchange
        self._progress_token = _progress_token(params)

    @property
    def log_level(self) -> str:
        return self.client.log_level

    @property
    def own_session(self) -> Client | None:
        return self.client if self.client.era == "handshake" else None

    async def answer(self, method: str, params: Mapping[str, Any], name: str = "") -> Mapping[str, Any]:
        if not self.client.can_answer(method):
            raise RpcError(METHOD_NOT_FOUND, f"The client of this call does not answer {method[:100]}.")
        self._check_is_declared(method, params)
        async with self.while_asking():
            return await self._ask(method, self._clean(params), name, self.exchange)

    def _check_is_declared(self, method: str, params: Mapping[str, Any]) -> None:
        """Raise `RpcError` if a question has a form that the client has not declared.

        Source: MCP 2025-11-25, Elicitation, Error Handling; Sampling, Capabilities: the server must not ask so, and the code is -32602.
        """
        mode, modes = params.get("mode", "form"), self.client.elicitation_modes
        if method == "elicitation/create" and mode not in modes:
            text = f"The client of this call does not ask its user in the mode {mode!r:.40}, only in: {', '.join(modes)}."
            raise RpcError(INVALID_PARAMS, text)
        if (
            method == "sampling/createMessage"
            and not params.keys().isdisjoint(("tools", "toolChoice"))
            and not self.client.samples_with_tools
        ):
            raise RpcError(INVALID_PARAMS, "The client of this call does not take tools for sampling. Ask without tools and toolChoice.")

    @property
    def wants_progress(self) -> bool:
        return self._progress_token is not None

    def receive_progress(self, params: Mapping[str, Any]) -> None:
        if self.counts_progress:
            self.report(str(params.get("message", "")))
        elif self.wants_progress:
            self.exchange.send(notification("notifications/progress", {**self._clean(params), "progressToken": self._progress_token}))

    def report(self, text: str) -> None:
        """Send the client a piece of the tool's output as a notification of progress, unless it has only whitespace."""
        if message := text.strip():
            self._reported += 1
            progress = self._clean({"progress": self._reported, "message": message})
            params = {"progressToken": self._progress_token, **progress}
            self.exchange.send(notification("notifications/progress", params))

    def receive_log(self, params: Mapping[str, Any]) -> None:
        if self.client.wants_log(params):
            self.exchange.send(notification("notifications/message", self._clean(params)))

    def receive_resource_update(self, params: Mapping[str, Any]) -> None:
        if self.on_resource_updated is not None:
            self.on_resource_updated({**self._clean(params), "uri": params["uri"]})

    def receive_response(self, response: Mapping[str, Any]) -> None:
        self.response = response


def _meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _progress_token(params: Mapping[str, Any]) -> int | str | None:
    token = _meta_of(params).get("progressToken")
    return token if isinstance(token, (int, str)) and not isinstance(token, bool) else None


def result_of(response: Mapping[str, Any]) -> Message:
    """Return the result of a client's response.

    Raises:
        RpcError: The response is an error, or is not valid.
    """
    error = response.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        raise RpcError.received({**error, "message": str(error.get("message", ""))})
    result = response.get("result")
    if not isinstance(result, dict):
        raise RpcError(INTERNAL_ERROR, f"The client's response was refused: {response_fault(response)}.")
    return result
