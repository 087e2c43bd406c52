"""The lifecycle of one tool server: started once, restarted after it has ended, and quarantined if restarts do not help.

A task owns the server and starts it again when it is lost. Calls wait for it, and never start a server themselves, so that a configuration
has one process at most. `TRANSITIONS` is the whole state machine. Knows neither messages nor tools.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from callgate._clock import Clock
from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_errors import NotSent
from callgate.protocols import ServerState, ServerStatus

__all__ = ["TRANSITIONS", "Event", "RestartPolicy", "ServerLifecycle", "ServerWork", "State", "with_last_words"]

State = ServerState
Event = Literal["start", "started", "silent", "heard", "lost", "failed_too_often", "due", "close"]

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    ("idle", "start"): "starting",
    ("starting", "started"): "ready",
    ("starting", "lost"): "backoff",
    ("starting", "failed_too_often"): "quarantined",
    ("ready", "silent"): "degraded",
    ("ready", "lost"): "backoff",
    ("ready", "failed_too_often"): "quarantined",
    ("degraded", "heard"): "ready",
    ("degraded", "lost"): "backoff",
    ("degraded", "failed_too_often"): "quarantined",
    ("backoff", "due"): "starting",
    ("quarantined", "due"): "starting",
    **{(state, "close"): "closed" for state in ("idle", "starting", "ready", "degraded", "backoff", "quarantined", "closed")},
}
"""The states of a server, and what changes them.

ready: calls are sent. degraded: a call has timed out and the server is silent, so new calls wait. backoff: it starts again soon.
quarantined: it has failed too often, and calls are refused until the quarantine is over. Then it is started by the next call, or without
one after a longer time.
"""

STABLE_S = 30.0
"""A server that has run for this long, or has answered a call, is no longer counted as failing."""

_WORTH_WAITING_S = 5.0
"""A call is sent again after a start that is due in at most this time; else it is refused at once."""

S = TypeVar("S")


class RestartPolicy(Protocol):
    """When a server that has ended is started again."""

    @property
    def patience_s(self) -> float:
        """Calls wait for a start that is due in at most this time; before that, they are refused."""
        ...

    @property
    def until(self) -> str:
        """The end of an infinite quarantine, in words."""
        ...

    def wait_s(self, failures: int, clock: Clock) -> float | None:
        """Return how long to wait after this number of failures in a row; None: the server is quarantined."""
        ...

    def quarantine_s(self, failures: int) -> float:
        """Return how long the quarantine lasts; infinite: until `restart` is called."""
        ...

    def retry_without_call_s(self, failures: int) -> float:
        """Return how many seconds after the beginning of a quarantine the server is started if no call comes; infinite: never."""
        ...


class ServerWork(Struct, frozen=True, kw_only=True, eq=False):
    """The functions that start, follow and end one server."""

    serve: Callable[[], Awaitable[str]]
    """Starts the server and follows it to its end; returns why it has ended."""
    end: Callable[[], Awaitable[None]]
    """Ends what `serve` has started, in bounded time."""
    problem_of: Callable[[Exception], str]
    """Returns why `serve` has raised, as a sentence."""
    last_words: Callable[[], str]
    """Returns the end of what the server wrote to its standard error. Shown to the operator only."""
    on_problem: Callable[[str], None]
    """Called with why the server does not run."""
    is_expected: Callable[[Exception], bool] = lambda _: False
    """Returns whether what `serve` has raised is logged as information instead of a warning."""


class ServerLifecycle(Generic[S]):
    """The state of a server, and the task that keeps it running.

    Args:
        label: The name of the server in texts, such as `The plugin 'mail'`.
        policy: When it is started again.
    """

    def __init__(self, label: str, policy: RestartPolicy) -> None:
        self.label = label
        self.state: State = "idle"
        self.ready: S | None = None
        """The session that calls are sent on; None while `_attempt` is not done, or if the server is in quarantine or closed."""
        self.failures = 0
        self.starts = 0
        """The number of successful starts."""
        self.problem = ""
        """Why the server does not run, as a sentence; empty if it runs. May be shown to a model."""
        self.full_problem = ""
        """The same with the end of its standard error, for the operator."""
        self.wake = asyncio.Event()
        """Set if `serve` has something to look at."""
        self._policy = policy
        self._owner: asyncio.Task[None] | None = None
        self._quarantined_for = ""
        """The problem that led to the last quarantine; empty after a successful start."""
        self._is_warned = False
        """Whether the log has a warning that the server does not run. That it runs again is logged at the same level."""
        self._attempt: asyncio.Future[None] | None = None
        """Done when the next start has succeeded or failed; calls wait for it."""
        self._retry_at = 0.0
        self._began = 0.0

    def begin(self, work: ServerWork, clock: Clock, log: RedactedLog) -> None:
        """Start the owner, once."""
        if self._owner is None and self.state != "closed":
            self._clock, self._log = clock, log
            self._renew_attempt()
            self._owner = asyncio.get_running_loop().create_task(self._supervise(work), context=Context(), name=self.label)

    async def wait_for_first_attempt(self) -> None:
        """Wait for the end of the current start, successful or not."""
        with suppress(NotSent):
            await self._wait_for_attempt()

    async def close(self) -> None:
        self.enter("close")
        if self._owner is not None:
            self._owner.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._owner)
        self._fail_attempt(self.unavailable_error("the engine is closed"))

    async def wait_until_ready(self) -> S:
        """Wait until the server runs, and return what calls are sent on.

        Raises:
            NotSent: It cannot be started, or not soon enough.
        """
        while self.ready is None:
            if self.state == "closed":
                raise self.unavailable_error("the engine is closed")
            if self.state == "quarantined":
                self._leave_quarantine()
            elif self.state == "backoff" and (left_s := self._left_s()) > self._policy.patience_s:
                raise self._not_yet_error(left_s)
            await self._wait_for_attempt()
        return self.ready

    def mark_ready(self, ready: S) -> None:
        """Release waiting calls: the server is ready."""
        if self.problem:
            (self._log.warning if self._is_warned else self._log.info)("%s runs%s", self.label, " again" if self.starts else "")
            self._is_warned = False
        self.enter("started")
        self.ready, self.problem, self._quarantined_for = ready, "", ""
        self.starts += 1
        self._began = self._clock.monotonic()
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(None)

    def stop_sending(self) -> None:
        """Make calls wait for the next start from the moment when the server is lost."""
        if self.ready is not None:
            self.ready = None
            self._renew_attempt()
        self.wake.set()

    def hold(self) -> None:
        """Make new calls wait, because the server is silent, until it responds again or is restarted."""
        self.enter("silent")
        self.stop_sending()

    def resume(self, ready: S) -> None:
        """Release waiting calls: a server that was silent responds again."""
        self.enter("heard")
        self.ready = ready
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(None)

    def restart(self) -> None:
        """Forget the failures, and start a server that waits for its restart at once."""
        self.failures, self._retry_at = 0, 0.0
        if self.state in ("backoff", "quarantined"):
            self._renew_attempt()
        self.wake.set()

    def settle(self) -> None:
        """Forget the failures of a server that has run for long enough."""
        if self._clock.monotonic() - self._began > STABLE_S:
            self.failures = 0

    def enter(self, event: Event) -> None:
        self.state = TRANSITIONS.get((self.state, event), self.state)

    def status(self, name: str, tools: int, revision: str = "") -> ServerStatus:
        """Return the status of the server as the engine reports it."""
        restarts = max(0, self.starts - 1)
        return ServerStatus(name=name, state=self.state, problem=self.problem, revision=revision, tools=tools, restarts=restarts)

    def unavailable_error(self, why: str, left_s: float | None = None) -> NotSent:
        """Return the refusal of a call.

        Args:
            left_s: Seconds until the next start; None: it is not known when that is.
        """
        text = why.removesuffix(".")
        after_s = math.inf if left_s is not None and left_s > _WORTH_WAITING_S else left_s
        return NotSent(f"{text if text.startswith(self.label) else f'{self.label} cannot be used: {text}'}.", retry_after_s=after_s)

    # The owner

    async def _supervise(self, work: ServerWork) -> None:
        self.enter("start")
        try:
            while True:
                expected = False
                try:
                    problem = await work.serve()
                except Exception as error:  # whatever it is, calls must not wait for a server that is never started
                    problem, expected = work.problem_of(error), work.is_expected(error)
                words = work.last_words()
                await _end(work)
                self._note_end(problem, words, work, expected=expected)
                await self._wait_for_next(work)
        finally:
            await _end(work)

    def _note_end(self, problem: str, words: str, work: ServerWork, *, expected: bool) -> None:
        """Record and log why the server does not run. A problem that has led to a quarantine already is not logged as a warning again."""
        happened = "cannot be started" if self.state == "starting" else "has ended"
        self.problem = problem if problem.startswith(self.label) else f"{self.label} {happened}: {problem}"
        self.full_problem = with_last_words(self.problem, words)
        is_known = expected or self.full_problem == self._quarantined_for
        self._is_warned = self._is_warned or not is_known
        (self._log.info if is_known else self._log.warning)("%s", self.full_problem)
        work.on_problem(self.problem)

    async def _wait_for_next(self, work: ServerWork) -> None:
        """Wait until the server is to be started again."""
        ran, self.failures = self.state != "starting", self.failures + 1
        wait_s = self._policy.wait_s(self.failures, self._clock)
        self.wake.clear()
        if wait_s is not None:
            self.enter("lost")
            self._retry_at = self._clock.monotonic() + wait_s
            if not ran or wait_s > self._policy.patience_s:  # other calls wait for the next start
                self._fail_attempt(self._not_yet_error(wait_s))
                self._renew_attempt()
            await self._wait_until_due(wait_s)
        else:
            self.enter("failed_too_often")
            self._quarantined_for = self.full_problem
            self._retry_at = self._clock.monotonic() + self._policy.quarantine_s(self.failures)
            self._fail_attempt(self.unavailable_error(self.problem, self._left_s()))
            await self._wait_in_quarantine(self._policy.retry_without_call_s(self.failures))
            self._renew_attempt()
        self.wake.clear()
        self.enter("due")

    async def _wait_until_due(self, wait_s: float) -> None:
        """Wait for this time, or until `restart` is called."""
        sleeping = asyncio.ensure_future(self._clock.sleep(wait_s))
        try:
            while not sleeping.done() and self._left_s() > 0:
                await self._wait_for_wake(sleeping)
                self.wake.clear()
        finally:
            sleeping.cancel()

    async def _wait_in_quarantine(self, retry_s: float) -> None:
        """Wait for this time, or until a call comes after the end of the quarantine, or `restart` is called."""
        sleeping = asyncio.ensure_future(asyncio.Event().wait() if math.isinf(retry_s) else self._clock.sleep(retry_s))
        try:
            while not sleeping.done() and (self._left_s() > 0 or not self.wake.is_set()):
                self.wake.clear()
                await self._wait_for_wake(sleeping)
        finally:
            sleeping.cancel()

    async def _wait_for_wake(self, sleeping: asyncio.Future[Any]) -> None:
        """Wait until `wake` is set, or until the sleep has ended."""
        waking = asyncio.ensure_future(self.wake.wait())
        try:
            await asyncio.wait([sleeping, waking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()

    def _not_yet_error(self, left_s: float) -> NotSent:
        """Return the refusal of a call before the next start."""
        when = f". It is started again in {left_s:.0f} s" if left_s > self._policy.patience_s else ""
        return self.unavailable_error(f"{self.problem.removesuffix('.')}{when}", left_s)

    def _leave_quarantine(self) -> None:
        """Restart the server if the quarantine is over.

        Raises:
            NotSent: It is not over.
        """
        left_s = self._left_s()
        if left_s > 0:
            when = f"for {left_s:.0f} s" if left_s < math.inf else self._policy.until
            often = "once" if self.failures == 1 else f"{self.failures} times"
            failed = f"It has failed {often}, and is not tried again {when}"
            raise self.unavailable_error(f"{self.problem.removesuffix('.')}. {failed}", left_s)
        self._renew_attempt()
        self.wake.set()

    def _left_s(self) -> float:
        return self._retry_at - self._clock.monotonic()

    async def _wait_for_attempt(self) -> None:
        """Wait for the end of the current start.

        Raises:
            NotSent: It has failed.
        """
        assert self._attempt is not None
        await asyncio.shield(self._attempt)

    def _renew_attempt(self) -> None:
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()

    def _fail_attempt(self, error: NotSent) -> None:
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_exception(error)
            self._attempt.exception()  # perhaps never awaited


def with_last_words(why: str, words: str) -> str:
    """Return why a server has ended, with the end of its standard error, for the operator."""
    return f"{why.removesuffix('.')}; the end of its stderr: {words}" if words else why


async def _end(work: ServerWork) -> None:
    """End what was started, even if the owner is cancelled in the meantime."""
    ending = asyncio.ensure_future(work.end())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise
