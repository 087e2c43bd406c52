"""Requests of stateless clients that wait for input of the client, and the sealed states by which they are continued.

Such a request ends with a result that says what is wanted; the client then sends the request again, with the answers and the state. Between
the two, the call goes on here and waits for the answers. The state names it, is encrypted, and is valid for one principal, for the same
method and params, once, and for a limited time.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callgate._json import canonical, plain_bytes
from callgate.gateway._client_calls import ClientCall
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

__all__ = ["ParkedRequests", "RunningRequest", "request_digest"]

_CONTINUATION = frozenset({"inputResponses", "requestState", "_meta"})
"""The params that differ when a request is continued."""


class _Question(Struct):
    """What the client is asked."""

    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]


class RunningRequest:
    """One request that may ask the client, from its first message to its result.

    Args:
        digest: Identifies the method and the params; see `request_digest`.
    """

    def __init__(self, principal: str, digest: str) -> None:
        self.principal = principal
        self.digest = digest
        self.call: ClientCall
        """The call; set before the request is started."""
        self._questions: dict[str, _Question] = {}
        self._early: dict[str, Mapping[str, Any]] = {}
        """Answers to questions that have not been asked yet."""
        self._asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as there is a question."""
        self._task: asyncio.Task[Message]

    def start(self, work: Coroutine[Any, Any, Message]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def ask(self, method: str, params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Wait for the client's answer to a question, which is asked with the next result.

        Args:
            name: The name for the question; empty or taken: one is made.
        """
        if name in self._early:
            return self._early.pop(name)
        if not name or name in self._questions:
            name = f"{method.partition('/')[0]}-{secrets.token_hex(4)}"
        question = _Question(method, params, asyncio.get_running_loop().create_future())
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
            await asyncio.wait((self._task, self._asked), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._task.done():
            return self._task.result()
        await asyncio.sleep(0)  # the server may ask for more in the same message
        self._asked = asyncio.get_running_loop().create_future()
        return None

    def questions(self) -> dict[str, Message]:
        """Return what the client is to be asked, by name."""
        return {name: {"method": one.method, "params": one.params} for name, one in self._questions.items()}

    def take_answers(self, answers: object) -> None:
        """Take the client's answers. A question without an answer is asked again.

        Raises:
            RpcError: They are no object with objects for the questions.
        """
        given = {} if answers is None else answers
        if not isinstance(given, dict) or not all(isinstance(given.get(name, {}), dict) for name in self._questions):
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object with an object for each of the inputRequests.")
        self._early = {name: one for name, one in given.items() if name not in self._questions and isinstance(one, dict)}
        for name in self._questions.keys() & given.keys():
            if not self._questions[name].answer.done():
                self._questions[name].answer.set_result(given[name])
        if any(not one.answer.done() for one in self._questions.values()):
            self._wake()

    def cancel(self) -> None:
        self._task.cancel()

    def _wake(self) -> None:
        if not self._asked.done():
            self._asked.set_result(None)


class _State(Struct, forbid_unknown_fields=True):
    """What a sealed state says."""

    request: str
    principal: str
    digest: str


class ParkedRequests:
    """The requests of one gateway that wait for their clients.

    Args:
        secret: 32 bytes from which states are encrypted; None: random ones.
        most: How many requests may wait.
        wait_s: Seconds after which a request that nobody continues is cancelled.
    """

    def __init__(self, secret: bytes | None, *, most: int, wait_s: float) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self._most = most
        self._wait_s = wait_s
        self._parked: dict[str, tuple[RunningRequest, asyncio.TimerHandle]] = {}

    @cached_property
    def _seal(self) -> Fernet:
        from base64 import urlsafe_b64encode

        from cryptography.fernet import Fernet

        return Fernet(urlsafe_b64encode(hashlib.sha256(b"callgate request state" + self._secret).digest()))

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, request: RunningRequest) -> str:
        """Keep a request until it is continued; return its sealed state.

        Raises:
            RpcError: Too many requests wait already.
        """
        if len(self._parked) >= self._most:
            request.cancel()
            raise RpcError(INTERNAL_ERROR, f"{self._most} requests wait for input of their clients already. Try again later.")
        name = secrets.token_hex(16)
        self._parked[name] = request, asyncio.get_running_loop().call_later(self._wait_s, self._give_up, name)
        return self._seal.encrypt(plain_bytes(_State(name, request.principal, request.digest))).decode()

    def take(self, state: object, principal: str, digest: str) -> RunningRequest:
        """Return the request that a state names, and keep it no longer.

        Raises:
            RpcError: The state is not one of this gateway, has been used, has expired, or belongs to another principal or request.
        """
        found = self._opened(state)
        if found is not None and (found.principal, found.digest) == (principal, digest):
            parked = self._parked.pop(found.request, None)
            if parked is not None:
                parked[1].cancel()
                return parked[0]
        raise RpcError(
            INVALID_PARAMS,
            "The requestState is not valid here: it was changed, was used already, has expired, or belongs to another request. Make the"
            " request again without it.",
        )

    def _opened(self, state: object) -> _State | None:
        from cryptography.fernet import InvalidToken

        if not isinstance(state, str):
            return None
        try:
            return msgspec.json.decode(self._seal.decrypt(state.encode("utf-8", "replace"), ttl=None), type=_State)
        except (InvalidToken, msgspec.DecodeError):
            return None

    def _give_up(self, name: str) -> None:
        self._parked.pop(name)[0].cancel()

    def close(self) -> None:
        for request, timer in self._parked.values():
            timer.cancel()
            request.cancel()
        self._parked.clear()


def request_digest(method: str, params: Mapping[str, Any]) -> str:
    """Return a text that identifies a request whose continuations differ only in their answers."""
    return hashlib.sha256(canonical([method, {key: value for key, value in params.items() if key not in _CONTINUATION}])).hexdigest()
