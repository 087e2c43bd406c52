"""The requests of one client that are being answered, so that the client can cancel them by their ids, and the gateway can end them.

A client may not use the id of a request that it has no response to yet. If it does, the second request is refused with the id `null`, as
JSON-RPC says for what is not a valid request: with its own id, the refusal would be taken for the answer of the first.

Sources: MCP 2026-07-28, Base Protocol: "Requests"; JSON-RPC 2.0, "Response object".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from callgate.errors import CallgateError, JournalFailed, RecordFailed
from callgate.gateway._client_calls import ClientCall
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_REQUEST, RpcError, answer, error_answer

__all__ = ["UNRECORDED", "UNRECORDED_TEXT", "WHY_ENDED", "CancellableRequests", "duplicate_id", "error_for_client"]

log = logging.getLogger("callgate")

UNRECORDED = (JournalFailed, RecordFailed)
"""Errors that say nothing about a call but that its record cannot be read or written. Their messages are for the operator."""
UNRECORDED_TEXT = "The gateway cannot read its record at the moment. Its operator is told why. Try again later."
WHY_ENDED: Final = "because the access or the session of its client has ended, or the gateway stops"
_CLOSE_S = 1.0


class CancellableRequests:
    """The running requests of one front.

    Args:
        result_of_ended: Returns the result of a call whose request was ended, as this front's clients get it; None if the request was not
            for a call.
    """

    def __init__(self, result_of_ended: Callable[[ClientCall], Awaitable[Message | None]]) -> None:
        self._result_of_ended = result_of_ended
        self._tasks: dict[object, asyncio.Task[Any]] = {}
        """The tasks that answer requests, by the id of the request."""
        self._calls: dict[object, ClientCall] = {}
        self._cancelled: set[object] = set()
        self._closed = False

    def note_call(self, request_id: object, call: ClientCall) -> None:
        """Remember the call of a running request."""
        if request_id in self._tasks:
            self._calls[request_id] = call

    async def run(self, request_id: object, work: Coroutine[Any, Any, Message]) -> Message | None:
        """Return the response to a request, whose result `work` returns; None if the client has cancelled it.

        The calling task is cancelled if the request is, or if the front is closed. If that ends a call, its result is what is known of it.
        """
        if request_id in self._tasks:
            work.close()
            return duplicate_id(request_id)
        task = asyncio.current_task()
        assert task is not None
        self._tasks[request_id] = task
        try:
            response = await _response(request_id, work)
        except asyncio.CancelledError:
            if request_id in self._cancelled:
                if task.uncancel():  # the caller was cancelled too
                    raise
                return None
            last = await self._last_response(request_id)
            if last is None:
                raise
            task.uncancel()
            return last
        else:
            if request_id not in self._cancelled:
                return response
            task.uncancel()
            return None
        finally:
            del self._tasks[request_id]
            self._calls.pop(request_id, None)
            self._cancelled.discard(request_id)

    def cancel(self, notification: Mapping[str, Any]) -> None:
        """Cancel the request that a notification `notifications/cancelled` names. It gets no response."""
        params = notification.get("params")
        request_id = params.get("requestId") if isinstance(params, dict) else None
        task = self._tasks.get(request_id) if isinstance(request_id, (int, str)) else None
        if task is not None and request_id not in self._cancelled:
            self._cancelled.add(request_id)
            task.cancel()

    async def _last_response(self, request_id: object) -> Message | None:
        """Return the response to a request that was ended by `close`; None if it has no call."""
        call = self._calls.get(request_id) if self._closed else None
        if call is None:
            return None
        try:
            result = await self._result_of_ended(call)
        except RpcError as error:
            return error_answer(request_id, error)
        return None if result is None else answer(request_id, result)

    async def close(self) -> None:
        """Cancel all requests, in bounded time."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel(f"its request was ended, {WHY_ENDED}")
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)


def duplicate_id(request_id: object) -> Message:
    """Return the response to a request with the id of one that runs or is being cancelled."""
    error = RpcError(INVALID_REQUEST, f"A request with the id {request_id!r:.80} runs already. Use another id.")
    return error_answer(None, error)


async def _response(request_id: object, work: Awaitable[Message]) -> Message:
    try:
        return answer(request_id, await work)
    except Exception as error:
        return error_answer(request_id, error_for_client(error))


def error_for_client(error: Exception) -> RpcError:
    """Return the error for the client whose request has failed. Log an error that is not meant for the client."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, UNRECORDED):
        log.error("A request of an MCP client could not be answered: %s", error)
        return RpcError(INTERNAL_ERROR, UNRECORDED_TEXT)
    if isinstance(error, CallgateError):
        log.warning("A request of an MCP client could not be answered: %s", error)
        return RpcError(INTERNAL_ERROR, str(error))
    log.error("A request of an MCP client could not be answered", exc_info=error)
    return RpcError(INTERNAL_ERROR, "The gateway could not answer this request. Its log says why.")
