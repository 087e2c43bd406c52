"""Requests of stateless clients that wait for input of the client.

Such a request ends with a result that says what is wanted; the client then sends the request again, with the answers and a sealed state,
which names it (see `request_states.py`). Between the two, the call goes on here and waits for the answers. A state is valid once, and for
a limited time.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec import Struct

from callgate.gateway._client_calls import ClientCall
from callgate.gateway._requests.request_states import ParkedState, RequestStates, request_over
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from callgate.mcp._server_requests import answer_fault

__all__ = ["MultiRoundRequest", "ParkedRequests", "answers_of"]

_CANCEL_S = 0.9
"""How long the end of the call of a cancelled request is waited for."""


class _InputRequest(Struct):
    """What the client is asked."""

    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]


class MultiRoundRequest:
    """One request that may ask the client, from its first message to its result.

    Args:
        digest: Identifies the method and the params; see `request_states.request_digest`.
    """

    def __init__(self, principal: str, digest: str) -> None:
        self.principal = principal
        self.digest = digest
        self.call: ClientCall
        """The call; set before the request is started."""
        self._questions: dict[str, _InputRequest] = {}
        self._early: dict[str, Mapping[str, Any]] = {}
        """Answers to questions that have not been asked yet."""
        self._asked: set[str] = set()
        """The names of all questions of a task."""
        self._on_change: Callable[[], None] | None = None
        self._progress: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as there is a question, or the result."""
        self._task: asyncio.Task[Message]

    def start(self, work: Coroutine[Any, Any, Message]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._wake)

    async def ask(self, method: str, params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Wait for the client's answer to a question, which is asked with the next result.

        Args:
            name: The name for the question; empty or taken: one is made.
        """
        if name in self._early:
            return self._early.pop(name)
        if not name or name in self._questions or name in self._asked:
            name = f"{method.partition('/')[0]}-{secrets.token_hex(4)}"
        if self._on_change is not None:
            self._asked.add(name)
        question = _InputRequest(method, params, asyncio.get_running_loop().create_future())
        self._questions[name] = question
        self._wake()
        try:
            return await question.answer
        finally:
            self._questions.pop(name, None)

    async def result_or_questions(self) -> Message | None:
        """Return the result; None as soon as the client has to be asked.

        Raises:
            RpcError: The request has failed.
        """
        try:
            await self._progress
        except asyncio.CancelledError:
            await self._cancelled()
            raise
        if self._task.done():
            return self._task.result()
        await asyncio.sleep(0)  # the server may ask for more in the same message
        if self._task.done():
            return self._task.result()
        self._progress = asyncio.get_running_loop().create_future()
        return None

    async def has_settled(self, within_s: float) -> bool:
        """Wait until there is a result or a question, at most `within_s` seconds; return whether there is one."""
        try:
            await asyncio.wait((self._progress,), timeout=within_s)
        except asyncio.CancelledError:
            await self._cancelled()
            raise
        return self._progress.done() or self._task.done()  # a task that is done is noted in the loop's next round

    def go_on(self, on_change: Callable[[], None]) -> None:
        """Go on without a request of the client that waits. A name of a question is never used again, and answers to others are ignored.

        Args:
            on_change: Called when there is a question, an answer or a result.
        """
        self._on_change = on_change
        self._early.clear()
        self._asked.update(self._questions)
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def done(self) -> bool:
        return self._task.done()

    def result(self) -> Message:
        """Return the result of a request that is done, or raise its error."""
        return self._task.result()

    def questions(self) -> dict[str, Message]:
        """Return what the client is to be asked, by name."""
        return {name: {"method": one.method, "params": one.params} for name, one in self._questions.items() if not one.answer.done()}

    def check_answers(self, answers: object) -> Mapping[str, Any]:
        """Return the client's answers by the names of the questions.

        Raises:
            RpcError: They are no object with objects for the questions, or one of them is not valid.
        """
        given = {} if answers is None else answers
        if not isinstance(given, dict) or not all(isinstance(given.get(name, {}), dict) for name in self._questions):
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object with an object for each of the inputRequests.")
        for name in self._questions.keys() & given.keys():
            if fault := answer_fault(self._questions[name].method, given[name]):
                raise RpcError(INVALID_PARAMS, f"The answer to {name[:100]!r} is not valid: {fault}. Send the request again with another.")
        return given

    def take_answers(self, answers: object) -> None:
        """Take the client's answers. A question without an answer is asked again.

        Raises: as `check_answers`.
        """
        given = self.check_answers(answers)
        if self._on_change is None:
            self._early = {name: one for name, one in given.items() if name not in self._questions and isinstance(one, dict)}
        for name in self._questions.keys() & given.keys():
            if not self._questions[name].answer.done():
                self._questions[name].answer.set_result(given[name])
        if self._on_change is not None or any(not one.answer.done() for one in self._questions.values()):
            self._wake()

    def cancel(self, why: str = "") -> None:
        """Cancel the request.

        Args:
            why: What is recorded with the end of its call.
        """
        self._task.cancel(why or None)

    async def _cancelled(self) -> None:
        """Cancel the request, and wait until its call has ended, so that its end is on record; in bounded time."""
        self.cancel()
        await self.wait_done(_CANCEL_S)

    async def wait_done(self, within_s: float) -> None:
        """Wait until the request has its result, or within this time."""
        await asyncio.wait((self._task,), timeout=within_s)

    def _wake(self, _: object = None) -> None:
        if not self._progress.done():
            self._progress.set_result(None)
        if self._on_change is not None:
            self._on_change()


class ParkedRequests:
    """The requests of one gateway that wait for their clients.

    Args:
        states: Seals the states of requests.
        replica: The address of this gateway for others on its journal; empty if there are none.
        most: How many requests may wait. A principal may have one more while it has no more than there are free places.
        wait_s: Seconds after which a request that nobody continues is cancelled.
    """

    def __init__(self, states: RequestStates, replica: str, *, most: int, wait_s: float) -> None:
        self._states = states
        self._replica = replica
        self._most = most
        self._wait_s = wait_s
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
        return self._states.sealed(ParkedState(request.principal, request.digest, name, self._replica))

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
        """Return the request that a state names, and keep it no longer.

        Raises:
            RpcError: The state has been used, or has expired; or the answers are not valid, and it can be used again.
        """
        if state.request not in self._parked:
            raise request_over()
        self._parked[state.request][0].check_answers(answers)
        request, timer = self._removed(state.request)
        timer.cancel()
        return request

    def _give_up(self, name: str) -> None:
        self._removed(name)[0].cancel()

    def _removed(self, name: str) -> tuple[MultiRoundRequest, asyncio.TimerHandle]:
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


def answers_of(params: Mapping[str, Any]) -> Mapping[str, Message]:
    """Return the client's answers to what it was asked, by the name of the question.

    Raises:
        RpcError: They are no object of objects.
    """
    answers = params.get("inputResponses")
    if answers is None:
        return {}
    if not (isinstance(answers, dict) and all(isinstance(one, dict) for one in answers.values())):
        raise RpcError(INVALID_PARAMS, "inputResponses must be an object with an object for each of the inputRequests.")
    return answers
