"""Find the running requests that a question of a server may belong to, if it arrived on a stream that all requests share.

Servers of the handshake era name no request when they ask something. If several run, a question is kept until all others have their
answers. It is refused if that cannot happen: because each of them waits for the answer to a question, or because the caller of one no
longer waits, so that the server may never answer it. A client with a session of its own is asked at once, for the sake of all its requests.
Knows no client and no connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from callgate.mcp._messages import INTERNAL_ERROR, RpcError
from callgate.mcp._running_requests import RunningRequest, RunningRequests

__all__ = ["QuestionOrigins"]


class QuestionOrigins:
    """Finds the requests that the questions of one session belong to."""

    def __init__(self, running: RunningRequests) -> None:
        self._running = running
        self._kept = 0
        """How many questions wait for the ends of requests."""

    async def find(self, possible: Sequence[RunningRequest]) -> Sequence[RunningRequest]:
        """Return the requests that a question belongs to: one, or those of one client, which may be none that still runs.

        Args:
            possible: The requests from which it may have come.

        Raises:
            RpcError: It cannot be found out.
        """
        if _of_one_client(possible):
            return [one for one in possible if one.state == "running"]
        self._kept += 1
        try:
            return [await self._only_one(possible)]
        finally:
            self._kept -= 1

    async def _only_one(self, possible: Sequence[RunningRequest]) -> RunningRequest:
        while True:
            left = [one for one in possible if one.state != "answered"]
            running = [one for one in left if one.state == "running"]
            if len(left) == 1 and running:
                return running[0]
            if len(running) < len(left) or self._kept >= len(running):
                text = f"{len(left)} calls of this session are open, and it cannot be told which of them asks this. Make the call again."
                raise RpcError(INTERNAL_ERROR, text)
            await self._running.wait_for_change()


def _of_one_client(possible: Sequence[RunningRequest]) -> bool:
    """Return whether all requests are of one client, which can be asked for the sake of any of them."""
    sessions = [one.caller.client.own_session if one.caller.client is not None else None for one in possible]
    return not sessions or (sessions[0] is not None and all(one is sessions[0] for one in sessions))
