"""One request of a stateless client, from its first message to its result, with what the client is asked in between.

Such a request ends with a result that says what is wanted; the client then sends the request again, with the answers. Between the two, the
call continues here and waits for the answers; `parked_requests.py` keeps it.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from callgate.gateway._client_calls import ClientCall
from callgate.gateway._requests.client_questions import ClientQuestions
from callgate.mcp._connection import Message

__all__ = ["MultiRoundRequest"]

T = TypeVar("T")

_CANCEL_S = 0.9
"""How long to wait for the end of the call of a cancelled request."""


class MultiRoundRequest:
    """One request that may ask the client. Its work begins at once.

    Args:
        digest: Identifies the method and the params; see `request_states.request_digest`.
        questions: What the call asks the client.
        work: Returns the result.
    """

    def __init__(
        self, principal: str, digest: str, call: ClientCall, questions: ClientQuestions, work: Coroutine[Any, Any, Message]
    ) -> None:
        self.principal = principal
        self.digest = digest
        self.call = call
        self.questions = questions
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(questions.note_change)

    async def result_or_questions(self) -> Message | None:
        """Return the result; None as soon as the client has to be asked.

        Raises:
            RpcError: The request has failed.
        """
        await self.unless_cancelled(self.questions.changed)
        if self._task.done():
            return self._task.result()
        await asyncio.sleep(0)  # the server may ask for more in the same message
        if self._task.done():
            return self._task.result()
        self.questions.expect_change()
        return None

    async def has_settled(self, within_s: float) -> bool:
        """Wait until there is a result or a question, at most `within_s` seconds; return whether there is one."""
        await self.unless_cancelled(asyncio.wait((self.questions.changed,), timeout=within_s))
        return self.questions.changed.done() or self._task.done()  # a task that is done is noted in the loop's next round

    async def unless_cancelled(self, waiting: Awaitable[T]) -> T:
        """Wait for something else, and return it. If that is cancelled, cancel the request, too."""
        try:
            return await waiting
        except asyncio.CancelledError as cancelled:
            await self._cancel_and_wait(str(cancelled.args[0]) if cancelled.args else "")
            raise

    def go_on(self, on_change: Callable[[], None]) -> None:
        """Continue although no request of the client waits.

        Args:
            on_change: Called when there is a question, an answer or a result.
        """
        self.questions.watch(on_change)
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def cancelled(self) -> bool:
        """Whether it is done and has no result, because it was cancelled."""
        return self._task.cancelled()

    @property
    def failure(self) -> BaseException | None:
        """The error of a request that has failed; None if it is not done, or has another end."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    def result(self) -> Message:
        """Return the result of a request that is done, or raise its error."""
        return self._task.result()

    def cancel(self, why: str = "") -> None:
        """Cancel the request.

        Args:
            why: What is recorded with the end of its call.
        """
        self._task.cancel(why or None)

    async def _cancel_and_wait(self, why: str) -> None:
        """Cancel the request, and wait until its call has ended, so that its end is on record; in bounded time."""
        self.cancel(why)
        await self.wait_done(_CANCEL_S)

    async def wait_done(self, within_s: float) -> None:
        """Wait until the request has its result, at most `within_s` seconds."""
        await asyncio.wait((self._task,), timeout=within_s)
