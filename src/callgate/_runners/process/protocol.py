"""What engine and worker say to each other: the letters of the frames, and the values in them.

    C  engine -> worker      a call: `CallMessage`
    K  engine -> supervisor  tell everything to stop, end it after so many seconds of grace
    B  worker -> engine      the tool is about to be entered
    P  worker -> engine      a piece of progress: `ProgressMessage`
    E  worker -> engine      the call's end: `Execution`; the worker takes the next one
    F  worker -> engine      the same, but the worker has to be replaced: the call left something behind
    O  supervisor -> engine  the stream's digit (1 output, 2 error) and what the tool wrote to it
    S  supervisor -> engine  the stream's digit and how many bytes of it were left out
    W  supervisor -> engine  it is about to start the worker
    X  supervisor -> engine  all is over: the worker's exit code, how many processes could not be ended, whether its channel was closed

Must not know how frames travel.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callgate._runners.failures import describe
from callgate._runners.result_reader import UNREADABLE, unreadable
from callgate.calls import Scope
from callgate.protocols import Execution

__all__ = ["LOST_CHANNEL", "CallMessage", "ProgressMessage", "WorkerExit", "decode_call", "decode_piece", "encode", "read_execution"]


class CallMessage(Struct, frozen=True, kw_only=True):
    """One attempt, as plain values."""

    target: str
    """Where the worker finds the tool; see `target`."""
    arguments: Raw
    scope: Scope
    extra: str
    """What the scope's `extra` is, where it does not cross: a live object, or too much; else empty."""
    call_id: str
    uid: str
    tool: str
    attempt: int
    key: str
    deadline: float
    """On `time.monotonic`, which all processes of a machine share. Means nothing on another machine, which sets its own."""
    show_kill_hint: bool
    max_bytes: int
    """The largest result that is sent back."""
    cpu_s: int | None


class ProgressMessage(Struct, frozen=True, array_like=True):
    """Progress, numbered from 1 within the call."""

    seq: int
    text: str
    stream: str


class WorkerExit(Struct, frozen=True):
    """How a worker ended."""

    code: int
    """Negative: the signal that ended it."""
    survivors: int
    closed_channel: bool

    @classmethod
    def read(cls, body: bytes) -> WorkerExit:
        code, survivors, closed = body.split()
        return cls(int(code), int(survivors), closed == b"1")


LOST_CHANNEL = 97
"""The exit code of a worker that can no longer answer, because its tool has closed the channel."""

encode = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(CallMessage).decode
decode_piece = msgspec.json.Decoder(ProgressMessage).decode
_decode_execution = msgspec.json.Decoder(Execution).decode


def read_execution(body: bytes | Raw) -> Execution:
    """What a worker sent as its call's end; a value that is nested too deep is an error of the tool.

    Raises:
        msgspec.DecodeError: It is no execution.
    """
    try:
        execution = _decode_execution(body)
        status = "returned" if execution.error_type == UNREADABLE else execution.status
        return replace(execution, status=status, read=True)  # what is decoded is plain, whatever the worker says
    except RecursionError as error:
        return unreadable(f"The tool's result cannot be read back: {describe(error)[1]}.")
