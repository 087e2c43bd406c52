"""The requests of one session that wait for an answer, and the one that a message of the server belongs to.

A message on the stream of a request belongs to that request. Standard input and output have one stream for all, on which a message names no
request unless it reports progress. A log message then counts as sent for the call that was started last; `_question_origins.py` finds the
one that a question belongs to. Knows no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from msgspec import Struct

from callgate.mcp.calling_client import CallingClient

__all__ = ["Caller", "OnProgress", "RunningRequest", "RunningRequests"]

OnProgress = Callable[[str], None]
_KEPT_IDS = 1_000


class Caller(Struct, frozen=True, kw_only=True, eq=False):
    """The origin of a request, and what receives its progress. The default is the engine itself, for example for lists."""

    uid: str = ""
    """The uid of the call; empty if the request is not a call of a tool."""
    on_progress: OnProgress | None = None
    """Called with the progress that the server reports, as text."""
    asking_human: Callable[[], AbstractContextManager[None]] = nullcontext
    """Returns a block in which the time of the call does not run."""
    client: CallingClient | None = None
    """The client on whose behalf the request is made."""

    def report_status(self, text: str, number: int) -> None:
        """Receive a progress text from the server."""
        if self.on_progress is not None:
            self.on_progress(text)
        if self.client is not None:
            self.client.receive_progress({"progress": number, "message": text})

    def answering(self, method: object) -> AbstractContextManager[None]:
        """Return the block in which a question is answered: by a human, unless it is one for the host's own model or folders."""
        return self.asking_human() if self.client is not None or method == "elicitation/create" else nullcontext()


class RunningRequest(Struct, eq=False):
    """A request that was sent to the server."""

    request_id: int
    caller: Caller
    state: Literal["running", "abandoned", "answered"] = "running"
    """`abandoned`: no caller waits for the answer any more, and none has arrived, so the server may still work on the request."""


class RunningRequests:
    """The running requests of one session, in the order of their starts."""

    def __init__(self) -> None:
        self._running: dict[int, RunningRequest] = {}
        self._abandoned: dict[int, RunningRequest] = {}
        self._uids: dict[int, str] = {}
        """The uids of the latest calls, by the id of the request."""
        self._change: asyncio.Future[None] | None = None
        """Set when the next request ends; None if no task waits for that."""

    def begin(self, request_id: int, caller: Caller) -> RunningRequest:
        running = self._running[request_id] = RunningRequest(request_id, caller)
        if caller.uid:
            self._uids[request_id] = caller.uid
            if len(self._uids) > _KEPT_IDS:
                del self._uids[next(iter(self._uids))]
        return running

    def end(self, running: RunningRequest, *, abandoned: bool) -> None:
        self._running.pop(running.request_id, None)
        running.state = "abandoned" if abandoned else "answered"
        if abandoned and running.caller.client is not None:
            self._abandoned[running.request_id] = running
            if len(self._abandoned) > _KEPT_IDS:
                del self._abandoned[next(iter(self._abandoned))]
        self._notify_change()

    def record_late_answer(self, request_id: int) -> None:
        """Record the late answer to a request that no caller waits for any more."""
        if (abandoned := self._abandoned.pop(request_id, None)) is not None:
            abandoned.state = "answered"
            self._notify_change()

    async def wait_for_change(self) -> None:
        """Wait until the next request ends or is answered late."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._change)

    def _notify_change(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change.set_result(None)

    def uid_of(self, request_id: int) -> str:
        """Return the uid of a call by the id of its request, also after its end; empty if it is not a call or ended long ago."""
        return self._uids.get(request_id, "")

    def latest(self) -> RunningRequest | None:
        """Return the request of a client that was started last, or if there is none, the last call of the host."""
        started = list(reversed(self._running.values()))
        for_clients = (one for one in started if one.caller.client is not None)
        return next(for_clients, None) or next((one for one in started if one.caller.uid), None)

    def possible_origins(self) -> list[RunningRequest]:
        """Return the requests from which a question that names none may come: those of clients, or if none runs, the host's calls."""
        for_clients = [one for one in self._running.values() if one.caller.client is not None]
        return [*self._abandoned.values(), *for_clients] or [one for one in self._running.values() if one.caller.uid]

    def report_progress(self, params: Mapping[str, Any]) -> None:
        """Pass on the params of a progress notification to the request that it names."""
        token = params.get("progressToken")
        running = self._running.get(token) if type(token) is int else None
        if running is None:
            return
        if running.caller.on_progress is not None:
            running.caller.on_progress(_progress_text(params))
        if running.caller.client is not None:
            running.caller.client.receive_progress({key: value for key, value in params.items() if key != "progressToken"})


def _progress_text(params: Mapping[str, Any]) -> str:
    done, total, text = (params.get(key) for key in ("progress", "total", "message"))
    amount = f"{done:.15g}" + (f"/{total:.15g}" if _is_number(total) else "") if _is_number(done) else ""
    return ": ".join(part for part in (amount, text) if isinstance(part, str) and part)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
