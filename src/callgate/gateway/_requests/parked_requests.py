"""Requests of stateless clients that wait for input of the client.

The client continues a request with a sealed state, which names it (see `request_states.py`). A state is valid once, and for a limited time.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

from callgate.gateway._gateway_limits import GatewayLimits
from callgate.gateway._requests.multi_round_requests import MultiRoundRequest
from callgate.gateway._requests.request_states import ParkedState, RequestStates, request_over
from callgate.mcp._messages import INTERNAL_ERROR, RpcError

__all__ = ["ParkedRequests"]


class ParkedRequests:
    """The requests of one gateway that wait for their clients.

    Args:
        states: Seals the states of requests.
        replica: The address of this gateway for others on its journal; empty if there are none.
        limits: How many requests may wait, and how long. A principal may have one more while it has no more than there are free places.
    """

    def __init__(self, states: RequestStates, replica: str, limits: GatewayLimits) -> None:
        self._states = states
        self._replica = replica
        self._most = limits.parked_requests
        self._wait_s = limits.answer_s
        self._parked: dict[str, tuple[MultiRoundRequest, asyncio.TimerHandle]] = {}
        self._own = Counter[str]()
        """How many of them each principal has."""

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, request: MultiRoundRequest) -> str:
        """Keep a request until it is continued; return its sealed state.

        Raises:
            RpcError: Too many requests wait already, of all principals or of this one.
        """
        self._check_room(request)
        name = secrets.token_hex(16)
        self._own[request.principal] += 1
        self._parked[name] = request, asyncio.get_running_loop().call_later(self._wait_s, self._give_up, name)
        return self._states.seal(ParkedState(request.principal, request.digest, name, self._replica))

    def _check_room(self, request: MultiRoundRequest) -> None:
        """Cancel the request if too many wait, or so many of its principal that few places are left for others.

        Raises:
            RpcError: It is cancelled.
        """
        own, free = self._own[request.principal], self._most - len(self._parked)
        if not free:
            request.cancel()
            raise RpcError(INTERNAL_ERROR, f"{self._most} requests wait for input of their clients already. Try again later.")
        if own > free:
            request.cancel()
            text = f"{own} requests of this principal wait for input already, and the other places are for others."
            raise RpcError(INTERNAL_ERROR, f"{text} Answer the questions of these requests, then try again.")

    def take(self, state: ParkedState, answers: object) -> MultiRoundRequest:
        """Return the request that a state names, and remove it.

        Raises:
            RpcError: The state has been used, or has expired; or the answers are not valid, and it can be used again.
        """
        if state.request not in self._parked:
            raise request_over()
        self._parked[state.request][0].questions.check_answers(answers)
        request, timer = self._remove(state.request)
        timer.cancel()
        return request

    def _give_up(self, name: str) -> None:
        self._remove(name)[0].cancel()

    def _remove(self, name: str) -> tuple[MultiRoundRequest, asyncio.TimerHandle]:
        request, timer = self._parked.pop(name)
        self._own[request.principal] -= 1
        if not self._own[request.principal]:
            del self._own[request.principal]
        return request, timer

    def close(self) -> None:
        for request, timer in self._parked.values():
            timer.cancel()
            request.cancel()
        self._parked.clear()
        self._own.clear()
