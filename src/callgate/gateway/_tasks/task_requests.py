"""Answer the requests of a stateless client about its tasks.

Source: MCP extension io.modelcontextprotocol/tasks, 2026-07-28.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from callgate.errors import RunHeld
from callgate.gateway._client_calls import Client
from callgate.gateway._requests.multi_round_requests import MultiRoundRequest
from callgate.gateway._tasks.tasks import RunningTask, Tasks, task_not_found
from callgate.gateway._tool_calls.call_records import CLIENT_CANCELLED, CallRecords
from callgate.gateway._tool_calls.ended_requests import cancelled_outcome
from callgate.gateway._tool_calls.submitted_calls import SubmittedCall
from callgate.gateway._tool_calls.tool_calls import ToolCalls
from callgate.gateway._tool_calls.tool_results import OUTCOME_KEY
from callgate.mcp._connection import Message
from callgate.mcp._extensions import TASKS
from callgate.mcp._messages import INTERNAL_ERROR, RpcError

__all__ = ["TASK_METHODS", "TaskRequests"]

TASK_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_MISSING_CAPABILITY = -32021
_CANCEL_S = 5.0
"""Seconds that a cancelled call may take to end, before its task is reported as cancelled."""


class TaskRequests:
    """The requests of one principal about its tasks.

    Args:
        records: Reads the calls of tasks that this process does not have.
        calls: Withdraws cancelled calls.
        resume: Submits a call of an earlier process again, given the server that had its tool.
        finish: Returns the result that the request would have had, given the result of the call.
    """

    def __init__(
        self,
        principal: str,
        tasks: Tasks,
        records: CallRecords,
        calls: ToolCalls,
        *,
        resume: Callable[[Client, SubmittedCall, str], MultiRoundRequest],
        finish: Callable[[Message], Message],
    ) -> None:
        self._principal = principal
        self._running = tasks
        self._records = records
        self._calls = calls
        self._resume = resume
        self._finish = finish

    async def answer(self, method: str, client: Client, params: Mapping[str, Any]) -> Message:
        """Return the result of a request about a task.

        Raises:
            RpcError: The client has not declared the extension, or has no such task.
        """
        _refuse_undeclared(client)
        task = await self._task(client, params.get("taskId"))
        match method:
            case "tasks/get":
                if task.lacks_outcome:
                    await self._record_cancellation(task)
                return task.describe()
            case "tasks/update":
                _refuse_elsewhere(task)
                task.request.questions.take_answers(params.get("inputResponses"))
            case _:
                await self._cancel(task)
        return {}

    async def _cancel(self, task: RunningTask) -> None:
        """Cancel a task. Returns when that is on record, so that the task stays cancelled."""
        if not task.request.done:
            task.request.cancel(CLIENT_CANCELLED)
            await task.request.wait_done(_CANCEL_S)
            await self._record_cancellation(task)
        elif task.lacks_outcome:  # an earlier request has not got as far
            await self._record_cancellation(task)

    async def _record_cancellation(self, task: RunningTask) -> None:
        """Withdraw the question about the call of a cancelled task, so that a later answer does not start it, and read how far it came."""
        call_id = task.request.call.status.call_id or task.state.call
        recorded = await self._records.call(call_id, task.state.arguments)
        if recorded is not None:
            try:
                await self._calls.withdraw(recorded)
            except RunHeld as held:
                self._running.forget(task)
                raise _elsewhere() from held
            await self._records.durable(call_id)
        await self._note_cancelled(task, call_id)

    async def find(self, client: Client, task_ids: Sequence[str]) -> list[RunningTask]:
        """Return the client's tasks with these ids. Those that this process does not have are continued here.

        Raises:
            RpcError: The client has not declared the extension.
        """
        if task_ids:
            _refuse_undeclared(client)
        found: list[RunningTask] = []
        for task_id in task_ids:
            with suppress(RpcError):  # there is no such task, or too many run
                found.append(await self._task(client, task_id))
        return found

    async def _task(self, client: Client, task_id: object) -> RunningTask:
        """Return a task of the client. One that this process does not have is continued here.

        Raises:
            RpcError: There is no such task.
        """
        tasks = self._running
        state = tasks.state_of(task_id, self._principal)
        kept = tasks.find(task_id, self._principal)
        if kept is not None and kept.lacks_record:
            tasks.forget(kept)
        elif kept is not None:
            await kept.wait_restored()
            return kept
        recorded = await self._records.call(state.call, state.arguments)
        if recorded is None or recorded.scope.principal != self._principal:
            raise task_not_found()
        if tasks.full:
            raise RpcError(INTERNAL_ERROR, "Too many tasks run here at the moment. The task is not lost: ask for it again later.")
        end = await self._records.end(state.call)
        kept = tasks.find(task_id, self._principal)  # another request for it may have been faster
        if kept is not None:
            return kept
        ended_ms = end.at_ms if end is not None and end.is_told else None
        task = tasks.resume(str(task_id), state, self._resume(client, recorded, state.server), self._finish, ended_ms)
        await task.wait_restored()
        if end is not None and end.result is None:
            await self._note_cancelled(task, state.call)
        return task

    async def _note_cancelled(self, task: RunningTask, call_id: str) -> None:
        """Add to a cancelled task whether its call may have taken effect."""
        text, outcome = cancelled_outcome(await self._records.start(call_id))
        task.cancelled_fields = {"statusMessage": text, "_meta": {OUTCOME_KEY: outcome}}
        self._running.tell_change(task)


def _refuse_elsewhere(task: RunningTask) -> None:
    """Raise `RpcError` for answers to a task that another process began and that has no question here: they may be for that process."""
    if task.request.call.resumed is not None and not (task.request.done or task.request.questions.unanswered()):
        raise _elsewhere()


def _elsewhere() -> RpcError:
    return RpcError(INTERNAL_ERROR, "Another gateway works on this task. Send the request there, or ask for the status until it has ended.")


def _refuse_undeclared(client: Client) -> None:
    if not client.takes_tasks:
        raise RpcError(
            _MISSING_CAPABILITY,
            f"The client has not declared the extension {TASKS} in its capabilities.",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )
