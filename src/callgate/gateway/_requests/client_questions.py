"""What the client of one stateless request is asked, and its answers.

A question waits until the client sends its answer with a continuation of the request, or with `tasks/update`. Knows neither the call nor
what has become of it.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from callgate.gateway._exchange import Exchange
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, RpcError
from callgate.mcp._server_requests import answer_fault

__all__ = ["ClientQuestions", "read_answers"]


class _InputRequest(Struct):
    """What the client is asked."""

    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]


class ClientQuestions:
    """The questions of one request."""

    def __init__(self) -> None:
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as there is a question, or the request has its result."""
        self._questions: dict[str, _InputRequest] = {}
        self._early: dict[str, Mapping[str, Any]] = {}
        """Answers to questions that have not been asked yet."""
        self._asked: set[str] = set()
        """The names of all questions of a task."""
        self._on_change: Callable[[], None] | None = None

    async def ask(self, method: str, params: Mapping[str, Any], name: str, exchange: Exchange) -> Mapping[str, Any]:
        """Wait for the client's answer to a question, which is asked with the next result.

        Args:
            name: The name for the question; empty or taken: one is made.
            exchange: Not used: nothing is sent before the result.
        """
        if name in self._early:
            return self._early.pop(name)
        if not name or name in self._questions or name in self._asked:
            name = f"{method.partition('/')[0]}-{secrets.token_hex(4)}"
        if self._on_change is not None:
            self._asked.add(name)
        question = _InputRequest(method, params, asyncio.get_running_loop().create_future())
        self._questions[name] = question
        self.note_change()
        try:
            return await question.answer
        finally:
            self._questions.pop(name, None)

    def unanswered(self) -> dict[str, Message]:
        """Return what the client is to be asked, by name."""
        return {name: {"method": one.method, "params": one.params} for name, one in self._questions.items() if not one.answer.done()}

    def check_answers(self, answers: object) -> Mapping[str, Any]:
        """Return the client's answers by the names of the questions.

        Raises:
            RpcError: They are not an object with objects for the questions, or one of them is not valid.
        """
        given = {} if answers is None else answers
        if not isinstance(given, dict) or not all(isinstance(given.get(name, {}), dict) for name in self._questions):
            raise _answers_refused()
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
            self.note_change()

    def note_change(self, _: object = None) -> None:
        """Set `changed`, and call what `watch` was given."""
        if not self.changed.done():
            self.changed.set_result(None)
        if self._on_change is not None:
            self._on_change()

    def expect_change(self) -> None:
        """Make `changed` wait for the next question."""
        self.changed = asyncio.get_running_loop().create_future()

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when there is a question, an answer or a result.

        From now on, the name of a question is never used again, and answers to others are ignored.
        """
        self._on_change = on_change
        self._early.clear()
        self._asked.update(self._questions)


def read_answers(params: Mapping[str, Any]) -> Mapping[str, Message]:
    """Return the client's answers to what it was asked, by the name of the question.

    Raises:
        RpcError: They are not an object of objects.
    """
    answers = params.get("inputResponses")
    if answers is None:
        return {}
    if not (isinstance(answers, dict) and all(isinstance(one, dict) for one in answers.values())):
        raise _answers_refused()
    return answers


def _answers_refused() -> RpcError:
    return RpcError(INVALID_PARAMS, "inputResponses must be an object with an object for each of the inputRequests.")
