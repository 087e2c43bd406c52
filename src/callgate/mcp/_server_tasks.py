"""Follow a task that a server has made of a call, until it has ended.

A server of the stateless era may answer a call with the id of a task, if its client declares the tasks extension. The client then asks for
the status of the task and answers what the task asks; the end of the task is the response to the call. A connection that is lost meanwhile
loses nothing, because the status can be asked for again. Knows no connection and no caller.

Source: MCP extension io.modelcontextprotocol/tasks, 2026-07-28.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from msgspec import Struct

from callgate.mcp._connection import ConnectionLost, McpError, Message, NotSent, ProtocolError
from callgate.mcp._messages import RpcError, result_of
from callgate.mcp._server_requests import InputRefused

__all__ = ["TaskLinks", "task_response"]

_POLL_S: Final = 1.0
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.05, 30.0
_MOST_LOST: Final = 10
"""How often in a row the status may be asked for in vain."""
_CANCEL_S: Final = 5.0


class TaskLinks(Struct, frozen=True, kw_only=True, eq=False):
    """How a task is followed."""

    server: str
    """How the server is called in errors."""
    exchange: Callable[[str, Mapping[str, Any]], Awaitable[Message]]
    """Sends a request and returns its response."""
    answers: Callable[[Mapping[str, Message]], Awaitable[Mapping[str, Any]]]
    """Returns the answers to what the task asks, by its names of the questions."""
    on_status: Callable[[str, int], None]
    """Called with what the server says about the task, and how often it has said something."""
    in_background: Callable[[Coroutine[Any, Any, None]], None]
    """Runs a coroutine that may outlast the call."""


async def task_response(created: Message, links: TaskLinks) -> Message:
    """Return the response that ends a task, which has `result` or `error`. If this is cancelled, or what the task asks for is refused, the
    task is cancelled.

    Args:
        created: The result with which the server announced the task.

    Raises:
        ConnectionLost: The server cannot be asked any longer.
        InputRefused: The task asked for input and gets none.
        ProtocolError: The server has cancelled or forgotten the task, or what it says of it cannot be read.
    """
    task_id = created.get("taskId")
    if not isinstance(task_id, str) or not task_id:
        raise ProtocolError(f"{links.server} made a task of the call without a taskId.")
    task = _Task(task_id, links)
    try:
        return await task.response(created)
    except (asyncio.CancelledError, InputRefused):
        links.in_background(task.cancel())
        raise


class _Task:
    def __init__(self, task_id: str, links: TaskLinks) -> None:
        self._id = task_id
        self._links = links
        self._answered: set[str] = set()
        self._said: list[str] = [""]

    async def response(self, told: Message) -> Message:
        while (response := await self._response_of(told)) is None:
            await asyncio.sleep(_pause_s(told))
            told = await self._poll(told)
        return response

    async def _response_of(self, told: Message) -> Message | None:
        """Return the response if the task has ended, else None; answer its questions first."""
        status, said = told.get("status"), told.get("statusMessage")
        if isinstance(said, str) and said and said != self._said[-1]:
            self._said.append(said)
            self._links.on_status(said, len(self._said) - 1)
        match status:
            case "working":
                return None
            case "input_required":
                await self._answer(told.get("inputRequests"))
                return None
            case "completed" if isinstance(told.get("result"), dict) and told["result"].get("resultType", "complete") == "complete":
                return {"jsonrpc": "2.0", "result": told["result"]}
            case "failed" if isinstance(told.get("error"), dict):
                return {"jsonrpc": "2.0", "error": told["error"]}
            case "cancelled":
                raise ProtocolError(f"{self._links.server} has cancelled the task of the call.")
        raise ProtocolError(f"{self._links.server} told of its task in a form that cannot be read (status {status!r:.40}).")

    async def _answer(self, asked: object) -> None:
        if not isinstance(asked, dict) or not all(isinstance(one, dict) for one in asked.values()):
            raise ProtocolError(f"{self._links.server} asked for input in a form that cannot be read.")
        new = {name: one for name, one in asked.items() if name not in self._answered}
        if new:
            answers = await self._links.answers(new)
            await self._send("tasks/update", {"taskId": self._id, "inputResponses": answers})
            self._answered |= new.keys()

    async def _poll(self, told: Message) -> Message:
        return await self._send("tasks/get", {"taskId": self._id}, _pause_s(told))

    async def _send(self, method: str, params: Mapping[str, Any], pause_s: float = _POLL_S) -> Message:
        """Send a request about the task until it is answered; it changes nothing if it arrives twice."""
        for _ in range(_MOST_LOST):
            try:
                return result_of(await self._links.exchange(method, params))
            except (NotSent, ConnectionLost) as error:
                lost = error
                await asyncio.sleep(pause_s)
            except RpcError as error:
                said = f"{error.message[:300]} ({error.code})"
                raise ProtocolError(f"{self._links.server} made a task of the call, and answers {method} with an error: {said}.") from error
        raise ConnectionLost(f"{self._links.server} made a task of the call, and cannot be asked for it any longer: {lost}") from lost

    async def cancel(self) -> None:
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._links.exchange("tasks/cancel", {"taskId": self._id})
        except (TimeoutError, McpError):
            return


def _pause_s(told: Message) -> float:
    """Return how long to wait before the next request: the server's interval, within bounds."""
    wanted = told.get("pollIntervalMs")
    if not isinstance(wanted, (int, float)) or isinstance(wanted, bool):
        return _POLL_S
    return max(min(wanted, _LONGEST_POLL_S * 1_000) / 1_000, _SHORTEST_POLL_S)
