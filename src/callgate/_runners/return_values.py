"""Read what a tool returned or raised: a value as plain JSON data, an exception as text.

Reading may run code of the tool's author, such as `model_dump`, `__iter__` or `__str__`, for any length of time, so it belongs to the
attempt. Results of thread and process tools are read where they ran; results of async tools and of the host's runners are read here: at
once if that certainly runs no such code, otherwise in a thread under the attempt's deadline and kill. Must not know how results are used.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import type_name
from callgate._runners.exception_results import TimeBound, clean, execution_of_exception, execution_overdue, message_of
from callgate._runners.offload_to_threads import Offload, WorkAbandoned
from callgate._runners.returned_content import content_of
from callgate.errors import ResultNotSerializable
from callgate.protocols import Execution

__all__ = ["UNREADABLE", "ReadingTimeout", "ResultReader", "execution_unreadable", "read_result"]

UNREADABLE = "ResultNotSerializable"
"""The `error_type` of an execution whose return value has no JSON form."""


class ReadingTimeout(Struct, frozen=True, eq=False):
    """The timeout and the kill signal of a reading."""

    timeout_s: float
    kill: AbortSignal


def read_result(execution: Execution, max_bytes: int, workspace: str | None = None) -> Execution:
    """Return `execution` with its value or exception read. May run foreign code; raises none of its errors.

    Args:
        workspace: The folder in which the path of a file is read; if empty, any; None if a path is only text.
    """
    if isinstance(execution.value, BaseException) and execution.status == "raised":
        return replace(execution_of_exception(execution.value), evidence=execution.evidence)
    if execution.status != "returned":
        return execution
    try:
        found = content_of(execution.value, max_bytes, workspace, only_data=execution.is_only_data)
    except ResultNotSerializable as error:
        return execution_unreadable(str(error), error.code)
    except BaseException as error:  # foreign code may raise anything; in a thread, nothing else would catch it
        return execution_unreadable(f"The tool's result cannot be read: {message_of(error).rstrip('.')}.")
    return Execution(
        status="returned",
        value=found.value,
        content=found.parts,
        read=True,
        failure=found.failure,
        changes=execution.changes + found.changes,
    )


def execution_unreadable(why: str, code: str = "non_serializable") -> Execution:
    """Return the execution of a tool whose return value cannot become a result."""
    return Execution(status="returned", read=True, error_type=UNREADABLE, error=why, details={"code": code})


class ResultReader:
    """Reads the results of one engine's tools."""

    def __init__(self, offload: Offload, max_bytes: int) -> None:
        self._offload = offload
        self.max_bytes = max_bytes

    async def read(self, execution: Execution, time: TimeBound, workspace: str | None = None) -> Execution:
        """Return `execution`, read in a thread; if that exceeds the timeout or is killed, return that outcome.

        Args:
            workspace: See `read_result`.
        """
        has_raised, refusal = execution.status == "raised", self._offload.refusal
        if refusal:
            return _execution_without_text(execution) if has_raised else execution_unreadable(f"The tool's result was not read: {refusal}")
        try:
            return await self._offload.run(partial(read_result, execution, self.max_bytes, workspace), time)
        except WorkAbandoned:
            killed = time.kill.reason is not None
            return _execution_without_text(execution) if has_raised and not killed else execution_overdue(time, killed, abandoned=True)


def _execution_without_text(execution: Execution) -> Execution:
    """Return the execution of a tool that raised an exception whose text could not be read."""
    kind = clean(type_name(execution.value))
    text = "its message could not be read in time"
    return Execution(status="raised", error_type=kind, error=text, evidence=execution.evidence)
