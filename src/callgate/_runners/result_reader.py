"""Read what a tool gave: a returned value as plain JSON data, an exception as text.

That may run code of the tool's author, such as `model_dump`, `__iter__` or `__str__`, for as long as it likes. So it belongs to the
attempt. What thread and process tools give is read where they ran; what an async tool or a runner of the host's gives is read here: at once
where that certainly takes no such code, in a thread under the attempt's deadline and kill where it may. Must not know what becomes of it.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import to_jsonable, type_name
from callgate._runners.failures import TimeBound, clean, describe, failed, overdue
from callgate._runners.offload import LeftBehind, Offload
from callgate.errors import ResultNotSerializable
from callgate.protocols import Execution

__all__ = ["UNREADABLE", "ReadingTimeout", "ResultReader", "read", "unreadable"]

UNREADABLE = "ResultNotSerializable"
"""The `error_type` of an execution that returned what has no JSON form."""


class ReadingTimeout(Struct, frozen=True, eq=False):
    """What ends the reading from outside."""

    timeout_s: float
    kill: AbortSignal


def read(execution: Execution, max_bytes: int) -> Execution:
    """`execution` with what it gave read. Runs whatever code that takes, and raises none of its errors."""
    if isinstance(execution.value, BaseException) and execution.status == "raised":
        return replace(failed(execution.value), evidence=execution.evidence)
    if execution.status != "returned":
        return execution
    try:
        value, changes = to_jsonable(execution.value, max_bytes=max_bytes)
    except ResultNotSerializable as error:
        return unreadable(str(error), error.code)
    except BaseException as error:  # in a thread, nobody else would catch it
        return unreadable(f"The tool's result cannot be read: {': '.join(describe(error))}.")
    return Execution(status="returned", value=value, read=True, changes=execution.changes + changes)


def unreadable(why: str, code: str = "non_serializable") -> Execution:
    """The execution of a tool that returned something of which there is no result."""
    return Execution(status="returned", read=True, error_type=UNREADABLE, error=why, details={"code": code})


class ResultReader:
    """Reads what the tools of one engine give."""

    def __init__(self, offload: Offload, max_bytes: int) -> None:
        self._offload = offload
        self.max_bytes = max_bytes

    async def read(self, execution: Execution, time: TimeBound) -> Execution:
        """`execution` with what it gave read, in a thread; what takes longer than `time` allows has timed out, or was killed."""
        refusal = self._offload.refusal
        if refusal:
            return _untold(execution) if execution.status == "raised" else unreadable(f"The tool's result was not read: {refusal}")
        try:
            return await self._offload.run(partial(read, execution, self.max_bytes), time)
        except LeftBehind:
            killed = time.kill.reason is not None
            return _untold(execution) if execution.status == "raised" and not killed else overdue(time, killed, abandoned=True)


def _untold(execution: Execution) -> Execution:
    """The execution of a tool that raised what does not say what it is."""
    kind = clean(type_name(execution.value))
    text = f"{kind}, whose text could not be read in time"
    return Execution(status="raised", error_type=kind, error=text, evidence=execution.evidence)
