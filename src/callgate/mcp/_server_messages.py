"""Handle what a server sends unasked in one session: progress, logs, notices of changes, and requests.

Requests are answered in tasks, and belong to a running call, see `_question_origins.py`. A question to a client ends with the call that it
belongs to. Knows no connection, and sends no request.

Sources: MCP 2025-11-25, Utilities, Client features; MCP 2026-07-28, Subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from contextvars import Context
from typing import Any

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate.mcp import _messages as messages
from callgate.mcp._connection import Message
from callgate.mcp._messages import RpcError
from callgate.mcp._question_origins import QuestionOrigins
from callgate.mcp._running_requests import RunningRequest, RunningRequests
from callgate.mcp._server_requests import AnswersServer

__all__ = ["ELICITATION_COMPLETE", "NOTICES", "RESOURCE_UPDATED", "OnNotice", "ServerMessages"]

ELICITATION_COMPLETE = "notifications/elicitation/complete"
"""The notification that an elicitation in URL mode is complete."""
RESOURCE_UPDATED = "notifications/resources/updated"
NOTICES = frozenset(
    {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")} | {RESOURCE_UPDATED, ELICITATION_COMPLETE}
)
"""The notifications that belong to no request and are passed to listeners."""
OnNotice = Callable[[str, Mapping[str, Any]], None]
"""Called with the method of a notice and its params. Returns at once."""

_LOGGED_NOISE = 5
_MOST_OUTSIDE_ANSWERS = 16
"""How many questions that belong to no request are remembered."""


class _Question(Struct, kw_only=True, eq=False):
    """A request of the server that is being answered."""

    origins: Sequence[RunningRequest]
    """The requests that it belongs to, or may belong to as long as that is not certain."""
    task: asyncio.Task[None]


class ServerMessages:
    """Handles the messages of the server of one session.

    Args:
        running: The running requests of the session.
        requests: Answers the requests of the server.
        notify: Sends an answer.
        has_requests: Whether servers send requests in the session's revision.
        on_notice: Called with notices of changes.
        on_confirmed: Called when the server confirms a subscription.
        label: The server, for logs.
    """

    def __init__(
        self,
        running: RunningRequests,
        requests: AnswersServer,
        *,
        notify: Callable[[Message], Coroutine[Any, Any, None]],
        has_requests: Callable[[], bool],
        on_notice: OnNotice,
        on_confirmed: Callable[[], None],
        log: RedactedLog,
        label: str,
    ) -> None:
        self.noise = 0
        """The number of things that the server sent and that were ignored."""
        self._running = running
        self._requests = requests
        self._notify = notify
        self._has_requests = has_requests
        self._on_notice = on_notice
        self._on_confirmed = on_confirmed
        self._log = log
        self._label = label
        self._origins = QuestionOrigins(running)
        self._questions: dict[object, _Question] = {}
        self._outside_answers: list[asyncio.Task[None]] = []
        self._replies: set[asyncio.Task[None]] = set()

    def handle(self, message: Message, of: RunningRequest | None) -> None:
        """Handle a notification or a request.

        Args:
            of: The request on whose stream it came; None if the stream is that of no request.
        """
        method, params = message.get("method"), _as_object(message.get("params"))
        if "id" in message:
            self._handle_request(message["id"], method, message.get("params", {}), of)
        elif method == "notifications/progress":
            self._running.report_progress(params)
        elif method in NOTICES:
            self._on_notice(str(method), params)
        elif method == "notifications/subscriptions/acknowledged":
            self._on_confirmed()
        elif method == "notifications/message":
            self._log_notification(params, of or self._running.latest())
        elif method == "notifications/cancelled":
            question = self._questions.get(_as_hashable(params.get("requestId")))
            if question is not None:
                question.task.cancel()

    def outside_answers(self) -> list[asyncio.Task[None]]:
        """Return the tasks that answer what the server has asked outside of requests, except those that it has adopted."""
        return self._outside_answers

    def forget_answers(self, answers: Collection[asyncio.Task[None]]) -> None:
        """Forget these tasks, because the server has their answers."""
        self._outside_answers = [task for task in self._outside_answers if task not in answers]

    def cancel_questions(self, running: RunningRequest) -> None:
        """Stop asking a client for the sake of a request that has ended, and tell the server."""
        for request_id, question in list(self._questions.items()):
            if running not in question.origins or running.caller.client is None:
                continue
            if not any(one.state == "running" for one in question.origins):
                question.task.cancel()
                self._reply(
                    messages.error_answer(request_id, RpcError(messages.INTERNAL_ERROR, "The call that this belongs to has ended."))
                )

    def count_noise(self, text: str) -> None:
        """Count something that is ignored."""
        self.noise += 1
        if self.noise <= _LOGGED_NOISE:
            self._log.warning("%s sent %s; it is ignored", self._label, text)

    def close(self) -> None:
        for task in (*(question.task for question in self._questions.values()), *self._replies):
            task.cancel()

    def _log_notification(self, params: Mapping[str, Any], running: RunningRequest | None) -> None:
        self._log.debug("%s logs: %s", self._label, str(params.get("data"))[:2_000])
        if running is not None and running.caller.client is not None:
            running.caller.client.receive_log(params)

    def _handle_request(self, request_id: object, method: object, params: object, of: RunningRequest | None) -> None:
        if type(request_id) not in (int, str):
            self.count_noise("a request without a valid id")
            return
        if not self._has_requests() and method != "ping":
            refusal = RpcError(messages.METHOD_NOT_FOUND, "Servers send no requests in this revision.")
            self._reply(messages.error_answer(request_id, refusal))
            return
        origins = [] if method == "ping" else [of] if of is not None else self._running.possible_origins()
        task = asyncio.get_running_loop().create_task(self._answer(request_id, method, params, origins), context=Context())
        question = self._questions[request_id] = _Question(origins=origins, task=task)
        task.add_done_callback(lambda _: self._forget(request_id, question))
        if of is None and origins:
            self._requests.note_unnamed_question()
        if method != "ping" and not any(one.state == "running" for one in origins):
            self._outside_answers = [*self._outside_answers[-_MOST_OUTSIDE_ANSWERS + 1 :], task]

    def _forget(self, request_id: object, question: _Question) -> None:
        if self._questions.get(request_id) is question:
            del self._questions[request_id]

    async def _answer(self, request_id: object, method: object, params: object, origins: Sequence[RunningRequest]) -> None:
        try:
            if self._requests.asks_client:
                origins = self._questions[request_id].origins = await self._origins.find(origins)
            with ExitStack() as answering:
                for one in origins:
                    answering.enter_context(one.caller.answering(method))
                client = origins[-1].caller.client if origins else None
                reply = messages.answer(request_id, await self._requests.answer(method, params, client))
        except RpcError as error:
            reply = messages.error_answer(request_id, error)
        await self._notify(reply)

    def _reply(self, message: Message) -> None:
        task = asyncio.get_running_loop().create_task(self._notify(message), context=Context())
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)


def _as_object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_hashable(value: object) -> object:
    return value if isinstance(value, (int, str)) else None
