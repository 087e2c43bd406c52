"""Calls of stateless clients that go on as tasks, for clients that declare the tasks extension.

A call that has no result after a while becomes a task: its request ends with the id of the task, by which the client asks for the result,
answers questions, or cancels it. The id is sealed and names the call. If the process that began the task has ended, the call is found in
the journal and submitted again: the engine then gives its stored result, says that its outcome is unknown, or runs it if it has not begun.

Source: MCP extension io.modelcontextprotocol/tasks, 2026-07-28.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from callgate._clock import Clock
from callgate._json import plain_bytes
from callgate.gateway._gateway_limits import GatewayLimits
from callgate.gateway._requests.cancellable_requests import UNRECORDED, UNRECORDED_TEXT, error_for_client
from callgate.gateway._requests.multi_round_requests import MultiRoundRequest
from callgate.gateway._requests.request_states import RequestStates, TaskState
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, RpcError

__all__ = ["DiscardingExchange", "RunningTask", "Tasks", "task_not_found"]

_POLL_MS = 1_000
_CANCELLING = "The call was cancelled. Whether it may have taken effect is not known yet."
_READ_S = 2.0
"""How long to wait for the recorded result of a call."""


class DiscardingExchange:
    """Discards the progress and log messages of a task, because no stream carries them. Implements `Exchange`."""

    def send(self, message: Message) -> bool:
        return False


class RunningTask:
    """A call that goes on as a task of its client. It is kept for a while after its end.

    Args:
        ttl_s: Seconds from its creation for which it is kept.
        finish: Returns the result that the request would have had, given the result of the call.
        ended_ms: When the call ended, if that is on record and the task is restored from it; else None.
    """

    def __init__(
        self,
        task_id: str,
        state: TaskState,
        request: MultiRoundRequest,
        ttl_s: float,
        finish: Callable[[Message], Message],
        ended_ms: int | None = None,
    ) -> None:
        self.id = task_id
        self.state = state
        self.request = request
        self.watchers: set[Callable[[RunningTask], None]] = set()
        """Called at each change."""
        self.updated_ms = state.created_ms
        self.ended_ms = ended_ms
        self.cancelled_fields: Message = {}
        """The fields of a cancelled task that say whether its call may have taken effect; empty until that is on record."""
        self._ttl_ms = int(ttl_s * 1_000)
        self._finish = finish

    async def wait_restored(self) -> None:
        """Wait until the result of an ended call has been read from the record, so that its task is not reported as running again."""
        if self.ended_ms is not None:
            await self.request.wait_done(_READ_S)

    @property
    def lacks_outcome(self) -> bool:
        """Whether the task is cancelled, and it is not known yet whether its call may have taken effect."""
        return self.request.cancelled and not self.cancelled_fields

    @property
    def lacks_record(self) -> bool:
        """Whether the request has ended only because the record of its call cannot be read or written here."""
        return self.request.done and (self.request.call.status.is_unrecorded or isinstance(self.request.failure, UNRECORDED))

    def describe(self) -> Message:
        """Return the task with its result, its error or what it asks the client."""
        task: Message = {
            "taskId": self.id,
            "status": "working",
            "createdAt": _iso(self.state.created_ms),
            "lastUpdatedAt": _iso(self.updated_ms),
            "ttlMs": self._ttl_ms,
            "pollIntervalMs": _POLL_MS,
        }
        if self.lacks_record:
            return {**task, "statusMessage": UNRECORDED_TEXT}
        return task | (self._end() if self.request.done else self._progress())

    def _progress(self) -> Message:
        questions, waits_for = self.request.questions.unanswered(), self.request.call.status.waits_for
        progress: Message = {"status": "input_required", "inputRequests": questions} if questions else {}
        return {**progress, "statusMessage": waits_for} if waits_for else progress

    def _end(self) -> Message:
        try:
            return {"status": "completed", "result": self._finish(self.request.result())}
        except asyncio.CancelledError:
            return {"status": "cancelled", **self.cancelled_fields} if self.cancelled_fields else {"statusMessage": _CANCELLING}
        except Exception as failure:
            error = error_for_client(failure)
            body: Message = {"code": error.code, "message": error.message}
            body |= {} if error.data is None else {"data": error.data}
            return {"status": "failed", "statusMessage": error.message, "error": body}


class Tasks:
    """The tasks of one gateway.

    Args:
        replica: The address of this gateway for others on its journal; empty if there are none.
        limits: How many tasks this process keeps, for how long, and how large their results may be together. The latest one is kept in
            any case.
    """

    def __init__(self, states: RequestStates, clock: Clock, replica: str, limits: GatewayLimits) -> None:
        self.after_s = limits.task_after_s
        """Seconds after which a call becomes a task."""
        self._states = states
        self._clock = clock
        self._replica = replica
        self._ttl_s = limits.task_ttl_s
        self._most = limits.tasks
        self._most_bytes = limits.task_bytes
        self._kept: dict[str, tuple[RunningTask, asyncio.TimerHandle]] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """The sizes of the results of the kept tasks, by the id of the task, in the order of their ends."""

    def __len__(self) -> int:
        """Return how many tasks run."""
        return sum(not task.request.done for task, _ in self._kept.values())

    @property
    def offered(self) -> bool:
        return self._most > 0

    @property
    def full(self) -> bool:
        """Whether no further call can become a task. Tasks that have ended are dropped for it: their results are read from the journal."""
        return len(self._kept) >= self._most and len(self) >= self._most

    def begin(self, request: MultiRoundRequest, finish: Callable[[Message], Message], arguments: str, server: str) -> RunningTask:
        """Turn a running request into a task, and return the task.

        Args:
            arguments: The digest of the arguments of its call.
            server: The server that has the tool of its call; empty if none has.
        """
        state = TaskState(request.principal, request.call.status.call_id, self._now_ms(), self._replica, arguments, server)
        return self._add(self._states.seal(state), state, request, finish)

    def resume(
        self, task_id: str, state: TaskState, request: MultiRoundRequest, finish: Callable[[Message], Message], ended_ms: int | None
    ) -> RunningTask:
        """Turn a request that submits the call of a task again into that task, which another process began, and return the task.

        Args:
            ended_ms: When the call has ended; None if it has not.
        """
        return self._add(task_id, state, request, finish, ended_ms)

    def state_of(self, task_id: object, principal: str) -> TaskState:
        """Return the content of the id of a principal's task.

        Raises:
            RpcError: There is no such task, or it has expired.
        """
        state = self._states.open_task(task_id, principal)
        if state is None or self._left_s(state) <= 0:
            raise task_not_found()
        return state

    def find(self, task_id: object, principal: str) -> RunningTask | None:
        """Return a principal's task if this process has it."""
        found = self._kept.get(task_id) if isinstance(task_id, str) else None
        return found[0] if found is not None and found[0].state.principal == principal else None

    def forget(self, task: RunningTask) -> None:
        """Drop a task and cancel its request, because another process has it."""
        if self._kept.get(task.id, (None,))[0] is task:
            self._drop(task.id)
            task.request.cancel()

    def tell_change(self, task: RunningTask) -> None:
        """Tell those who watch a task that it has changed."""
        task.updated_ms = task.ended_ms or self._now_ms()
        for watcher in list(task.watchers):
            watcher(task)
        if task.request.done and task.id in self._kept:
            self._sizes[task.id] = len(plain_bytes(task.describe()))
            while len(self._sizes) > 1 and sum(self._sizes.values()) > self._most_bytes:
                self._drop(next(iter(self._sizes)))

    def end(self, ended: Callable[[str], bool]) -> None:
        """Cancel the tasks of some principals, and forget them."""
        for task, _ in list(self._kept.values()):
            if ended(task.state.principal):
                self._expire(task.id)

    def _add(
        self,
        task_id: str,
        state: TaskState,
        request: MultiRoundRequest,
        finish: Callable[[Message], Message],
        ended_ms: int | None = None,
    ) -> RunningTask:
        self._make_room()
        task = RunningTask(task_id, state, request, self._ttl_s, finish, ended_ms)
        timer = asyncio.get_running_loop().call_later(self._left_s(state), self._expire, task_id)
        self._kept[task_id] = task, timer
        request.call.exchange, request.call.ask_later = DiscardingExchange(), None
        request.go_on(lambda: self.tell_change(task))
        return task

    def _make_room(self) -> None:
        ended = [task_id for task_id, (task, _) in self._kept.items() if task.request.done]
        for task_id in ended[: max(0, len(self._kept) + 1 - self._most)]:
            self._drop(task_id)

    def _expire(self, task_id: str) -> None:
        self._drop(task_id).request.cancel()

    def _drop(self, task_id: str) -> RunningTask:
        task, timer = self._kept.pop(task_id)
        self._sizes.pop(task_id, None)
        timer.cancel()
        return task

    def _left_s(self, state: TaskState) -> float:
        return self._ttl_s - (self._now_ms() - state.created_ms) / 1_000

    def _now_ms(self) -> int:
        return self._clock.wall_ns() // 1_000_000


def task_not_found() -> RpcError:
    """Return the error for a task that its client does not have."""
    return RpcError(INVALID_PARAMS, "There is no such task: the taskId is not valid, belongs to somebody else, or the task has expired.")


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
