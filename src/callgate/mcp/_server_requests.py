"""Answer what a server may ask of its client: questions to the user, requests to a language model, and the folders to work in.

Only what the host can answer is offered to the server as a capability, and everything else is refused. The same handlers serve both eras:
in the older one the server sends requests, in the newer one it asks within the result of a call. A session that belongs to one client asks
that client instead. Knows no connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from callgate._json import plain_bytes
from callgate._secret_redaction import RedactedLog
from callgate.mcp._connection import ProtocolError
from callgate.mcp._extensions import PASSED_EXTENSIONS
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from callgate.mcp.calling_client import CAPABILITY_OF, CallingClient
from callgate.mcp.server_config import Answers, McpServer

__all__ = ["AnswersServer", "ClientRequests", "InputRefused", "ServerRequests", "answer_fault", "client_answer"]

_MOST_AT_ONCE = 64
"""Requests of one server that may wait for an answer at the same time."""


class InputRefused(ProtocolError):
    """A server asked for input within the result of a request, and got none. The request is not continued."""

    code = "input_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"{why.removesuffix('.')}. It was not told to continue, but may have done something before it asked.")


class AnswersServer(Protocol):
    """Answers the requests of the server of one session."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities to offer to the server."""
        ...

    @property
    def asks_client(self) -> bool:
        """Whether the client answers whose call the request belongs to."""
        ...

    def note_unnamed_question(self) -> None:
        """Record that the server asks questions during calls without naming the call."""
        ...

    async def answer(self, method: object, params: object, client: CallingClient | None) -> Mapping[str, Any]:
        """Return the result of a request of the server.

        Args:
            client: The client of the call that the request belongs to; None if there is none.

        Raises:
            RpcError: The request is not offered, is invalid, or cannot be answered.
        """
        ...


class _WaitingClient(Struct, frozen=True, eq=False):
    """A client with a request that waits or runs."""

    client: CallingClient
    ended: asyncio.Future[None]
    """Done when the request has ended."""


class ClientRequests:
    """Answers the requests of the server of a session that belongs to one client, as long as one of the client's requests waits or runs.

    Args:
        capabilities: Those of the client.
        on_asked: Called when the server asks something during calls without saying for which.
    """

    asks_client = True

    def __init__(self, server: str, capabilities: Mapping[str, Any], log: RedactedLog, on_asked: Callable[[], None]) -> None:
        self.capabilities = capabilities
        self.note_unnamed_question = on_asked
        self._server = server
        self._log = log
        self._running = 0
        self._waiting: list[_WaitingClient] = []

    @contextmanager
    def asking(self, client: CallingClient) -> Iterator[None]:
        """Ask this client, during the block, what belongs to no call, such as the folders to work in when the session begins."""
        waiting = _WaitingClient(client, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            yield
        finally:
            self._waiting.remove(waiting)
            waiting.ended.set_result(None)

    async def answer(self, method: object, params: object, client: CallingClient | None) -> Mapping[str, Any]:
        if method == "ping":
            return {}
        if CAPABILITY_OF.get(str(method)) not in self.capabilities:
            raise RpcError(METHOD_NOT_FOUND, f"This client does not answer {str(method)[:100]}.")
        if client is None and not self._waiting:
            raise RpcError(METHOD_NOT_FOUND, f"This client answers {method} only while it waits for a call.")
        if self._running >= _MOST_AT_ONCE:
            raise RpcError(INTERNAL_ERROR, f"{_MOST_AT_ONCE} requests of this server wait already.")
        self._running += 1
        try:
            if client is None:
                return await self._answer_of_waiting(method, params)
            return await client_answer(client, method, params, self._server, self._log)
        finally:
            self._running -= 1

    async def _answer_of_waiting(self, method: object, params: object) -> Mapping[str, Any]:
        """Return what the client answers as part of its latest request; of another one if that ends before."""
        while self._waiting:
            waiting = self._waiting[-1]
            answering = asyncio.ensure_future(client_answer(waiting.client, method, params, self._server, self._log))
            try:
                await asyncio.wait((answering, waiting.ended), return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    return answering.result()
            finally:
                answering.cancel()
        raise RpcError(INTERNAL_ERROR, "The request of the client has ended.")


async def client_answer(
    client: CallingClient, method: object, params: object, server: str, log: RedactedLog, name: str = ""
) -> Mapping[str, Any]:
    """Return what a client answers to a question of a server.

    Args:
        name: The server's name of the question; empty if it has none.

    Raises:
        RpcError: The client refuses, the question is invalid, or the answer is not a JSON object.
    """
    if not isinstance(method, str) or not isinstance(params, Mapping):
        raise RpcError(INVALID_PARAMS, "The request has no method or no params.")
    try:
        result: object = await client.answer(method, params, name)
        if not isinstance(result, Mapping):
            raise TypeError(f"it is {type(result).__name__}, and must be a dict")
        if fault := answer_fault(method, result):
            raise ValueError(fault)
        plain_bytes(result)
    except (asyncio.CancelledError, RpcError):
        raise
    except Exception as error:
        log.error("MCP server %s: the client's answer to %s cannot be used", server, method, error=error)
        raise RpcError(INTERNAL_ERROR, "The client could not answer this request.") from error
    return result


def answer_fault(method: str, result: Mapping[str, Any]) -> str:
    """Return what is wrong with the answer to a question of a server, beside unknown fields; empty if nothing is.

    An answer is wrong if it could be taken for consent, or if no server could read it.
    """
    check = _FAULTS.get(method)
    return "" if check is None else check(result)


def _elicitation_fault(result: Mapping[str, Any]) -> str:
    action = result.get("action")
    if action not in ("accept", "decline", "cancel"):
        return f"its action is {action!r:.40}; it must be 'accept', 'decline' or 'cancel'"
    if not isinstance(result.get("content", {}), Mapping | None):
        return f"its content is {type(result['content']).__name__}; it must be an object"
    return ""


def _sampling_fault(result: Mapping[str, Any]) -> str:
    role, content, model = result.get("role"), result.get("content"), result.get("model")
    if role not in ("user", "assistant"):
        return f"its role is {role!r:.40}; it must be 'user' or 'assistant'"
    if not all(isinstance(one, Mapping) for one in (content if isinstance(content, (list, tuple)) else (content,))):
        return f"its content is {content!r:.40}; it must be an object or a list of objects"
    return "" if isinstance(model, str) else f"its model is {model!r:.40}; it must be a text"


def _roots_fault(result: Mapping[str, Any]) -> str:
    roots = result.get("roots")
    if not isinstance(roots, (list, tuple)):
        return f"its roots are {roots!r:.40}; it must be a list"
    wrong = [one for one in roots if not (isinstance(one, Mapping) and isinstance(one.get("uri"), str))]
    return f"one of its roots is {wrong[0]!r:.40}; it must be an object with a uri, a text" if wrong else ""


_FAULTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "elicitation/create": _elicitation_fault,
    "sampling/createMessage": _sampling_fault,
    "roots/list": _roots_fault,
}


class ServerRequests:
    """Answers the requests of one server by its configuration, for all calls alike."""

    asks_client = False

    def __init__(self, server: McpServer, log: RedactedLog) -> None:
        self._server = server
        self._log = log
        self._running = 0
        self._handlers: dict[str, Answers] = {}
        if server.elicitation is not None:
            self._handlers["elicitation/create"] = server.elicitation
        if server.sampling is not None:
            self._handlers["sampling/createMessage"] = server.sampling

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to offer to the server."""
        if self._server.client_tools:
            return {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}, "extensions": PASSED_EXTENSIONS}
        found: dict[str, Any] = {}
        if self._server.elicitation is not None:
            found["elicitation"] = {"form": {}, "url": {}}
        if self._server.sampling is not None:
            found["sampling"] = {}
        if self._server.roots:
            found["roots"] = {}
        return found

    def note_unnamed_question(self) -> None:
        """Do nothing: the answer is the same for all calls."""

    async def answer(self, method: object, params: object, client: CallingClient | None = None) -> Mapping[str, Any]:
        if method == "ping":
            return {}
        if method == "roots/list" and (self._server.roots or self._server.client_tools):
            return {"roots": [_to_root(one) for one in self._server.roots]}
        handler = self._handlers.get(method) if isinstance(method, str) else None
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"This client does not answer {str(method)[:100]}.")
        if not isinstance(params, Mapping):
            raise RpcError(INVALID_PARAMS, "The request has no params.")
        if self._running >= _MOST_AT_ONCE:
            raise RpcError(INTERNAL_ERROR, f"{_MOST_AT_ONCE} requests of this server wait already.")
        self._running += 1
        try:
            return await self._ask(handler, str(method), params)
        finally:
            self._running -= 1

    async def _ask(self, handler: Answers, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            result: object = await handler(params)
            if not isinstance(result, Mapping):
                raise TypeError(f"it returned {type(result).__name__}, and must return the result as a dict")
            if fault := answer_fault(method, result):
                raise ValueError(fault)
            plain_bytes(result)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._log.error("MCP server %s: the host's handler of %s has failed", self._server.name, method, error=error)
            raise RpcError(INTERNAL_ERROR, "The client could not answer this request.") from error
        return result


def _to_root(given: str | os.PathLike[str]) -> dict[str, str]:
    text = os.fspath(given)
    if text.startswith("file:"):
        return {"uri": text}
    path = Path(text).expanduser().absolute()
    return {"uri": path.as_uri(), "name": path.name}
