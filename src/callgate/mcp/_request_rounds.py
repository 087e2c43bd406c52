"""Send a request until it has its result: give the input that the server asks for within a result, and follow a task that it makes of it.

Both are of the stateless era, in which a server sends no requests of its own. A request is continued with the input, as the protocol says,
and never sent twice otherwise: a server that refuses a request until the user has opened an address has done nothing, and wants it again.
Clients of the handshake era know that refusal and get it. Knows no connection and no session.

Sources: MCP 2026-07-28, Multi Round-Trip Requests; extension io.modelcontextprotocol/tasks; MCP 2025-11-25, Elicitation: "URL Elicitation
Required Error".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from typing import Any

from callgate._secret_redaction import RedactedLog
from callgate.mcp._connection import ConnectionLost, Message, NotSent, ProtocolError
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED, RpcError, result_of
from callgate.mcp._running_requests import Caller
from callgate.mcp._server_requests import AnswersServer, InputRefused, client_answer
from callgate.mcp._server_tasks import TaskLinks, task_response

__all__ = ["RequestRounds"]

_CANNOT_BE_ASKED = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
_MOST_ROUNDS = 10
"""How often a server may ask for input during one request."""


class RequestRounds:
    """Sends the requests of one session.

    Args:
        server: The name of the server.
        exchange: Sends one request and returns its response.
        requests: Answers the server, if the caller of a request has no client that does.
        stateless: Whether the server is of the stateless era, so that it may ask for input.
        has_tasks: Whether the server may make tasks of calls.
    """

    def __init__(
        self,
        server: str,
        exchange: Callable[[str, Mapping[str, Any], Caller], Awaitable[Message]],
        requests: AnswersServer,
        log: RedactedLog,
        *,
        stateless: bool = False,
        has_tasks: bool = False,
    ) -> None:
        self._server = server
        self._named = f"The MCP server '{server}'"
        self._exchange = exchange
        self._requests = requests
        self._log = log
        self._stateless = stateless
        self.has_tasks = has_tasks
        self._ending: set[asyncio.Task[None]] = set()

    async def result(
        self, method: str, params: Mapping[str, Any], caller: Caller, on_response: Callable[[Message], None] | None = None
    ) -> Message:
        """Send a request and return the result as the server sent it.

        Args:
            on_response: Called with the response that ends the request.

        Raises:
            McpError: See `ServerConnection.request`.
            RpcError: The server answered with an error.
        """
        response = await self._last_response(method, params, caller)
        if on_response is not None:
            on_response(response)
        kind = _kind_of(response)
        if kind != "complete":
            raise ProtocolError(f"{self._named} answered with a result of the unknown type {kind!r:.40}.")
        return result_of(response)

    async def _last_response(self, method: str, params: Mapping[str, Any], caller: Caller) -> Message:
        given = params
        for _ in range(_MOST_ROUNDS + 1):
            try:
                response = await self._exchange(method, given, caller)
            except NotSent as error:
                if given is params:
                    raise
                raise ConnectionLost(f"{self._named} asked for input, which could not be sent: {error}") from error
            kind = _kind_of(response)
            if kind == "task" and self.has_tasks and method == "tools/call":
                return await task_response(response["result"], self._task_links(caller))
            if "error" in response and (pages := _pages_to_open(response["error"], caller)) and await self._have_opened(pages, caller):
                continue
            if kind != "input_required" or not self._stateless:
                return response
            given = {**params, **await self._answer_input(response["result"], caller)}
        raise ProtocolError(f"{self._named} asked for input more than {_MOST_ROUNDS} times during one request.")

    async def _answer_input(self, result: Message, caller: Caller) -> dict[str, Any]:
        """Return what continues a call, after which the server has asked for input."""
        asked, state = result.get("inputRequests"), result.get("requestState")
        if not (asked is None or isinstance(asked, dict)) or not (state is None or isinstance(state, str)) or not (asked or state):
            raise ProtocolError(f"{self._named} asked for input in a form that cannot be read.")
        requests: Message = asked or {}
        if not all(isinstance(request, dict) for request in requests.values()):
            raise ProtocolError(f"{self._named} asked for input in a form that cannot be read.")
        answers = await self._answer_all(requests, caller)
        more: dict[str, Any] = {"inputResponses": answers} if answers else {}
        return more if state is None else more | {"requestState": state}

    async def _answer_all(self, requests: Mapping[str, Message], caller: Caller) -> dict[str, Any]:
        """Return the answers to requests for input, by their names."""
        answering = [asyncio.ensure_future(self._answer(name, request, caller)) for name, request in requests.items()]
        try:
            return dict(zip(requests, await asyncio.gather(*answering), strict=True))
        finally:
            for one in answering:
                one.cancel()

    async def _answer(self, name: str, request: Message, caller: Caller) -> Mapping[str, Any]:
        """Return the answer to one of the requests for input.

        No answer is not consent, so a server whose question to the user is not answered gets `cancel`.

        Raises:
            InputRefused: It is not answered.
        """
        method, params = request.get("method"), request.get("params", {})
        try:
            with caller.answering(method):
                if caller.client is None:
                    return await self._requests.answer(method, params, None)
                return await client_answer(caller.client, method, params, self._server, self._log, name)
        except RpcError as error:
            if method == "elicitation/create" and error.code not in _CANNOT_BE_ASKED:
                return {"action": "cancel"}
            raise InputRefused(f"{self._named} asked for input ({str(method)[:60]}), which it did not get: {error.message}") from error

    async def _have_opened(self, pages: Mapping[str, Message], caller: Caller) -> bool:
        """Ask the client to open pages; return whether its user has agreed to all of them."""
        try:
            answers = await self._answer_all(pages, caller)
        except InputRefused:
            return False
        return all(answer.get("action") == "accept" for answer in answers.values())

    def _task_links(self, caller: Caller) -> TaskLinks:
        about_task = Caller(client=caller.client)
        return TaskLinks(
            server=self._named,
            exchange=lambda method, params: self._exchange(method, params, about_task),
            answers=partial(self._answer_all, caller=caller),
            on_status=caller.report_status,
            in_background=self._end_later,
        )

    def _end_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=Context())  # not a task of the tool, which has ended
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _pages_to_open(error: Message, caller: Caller) -> dict[str, Message]:
    """Return the pages that the user has to open first, by names for the questions; none for a client that reads this from the error."""
    if error["code"] != URL_ELICITATION_REQUIRED or caller.client is None or caller.client.own_session is not None:
        return {}
    data = error.get("data")
    listed = data.get("elicitations") if isinstance(data, dict) else None
    pages = [page for page in (listed if isinstance(listed, list) else ()) if isinstance(page, dict) and page.get("mode") == "url"]
    return {f"page-{number}": {"method": "elicitation/create", "params": page} for number, page in enumerate(pages, 1)}


def _kind_of(response: Message) -> str:
    return response["result"].get("resultType", "complete") if "result" in response else "complete"
