"""The protocol between engine and worker: the letters of the frames, and the values in them.

    C  engine -> worker      a call: `CallMessage`
    L  engine -> worker      import a tool, whose import target this is, for later calls; answered with E
    K  engine -> supervisor  stop: signal all processes, and end them after a grace period in seconds
    B  worker -> engine      the tool is about to start
    P  worker -> engine      a piece of progress: `ProgressMessage`
    E  worker -> engine      the call has ended: `Execution`; the worker is ready for the next one
    F  worker -> engine      the call has ended: `Execution`; the worker must be replaced, because the call left something behind
    O  supervisor -> engine  output: the stream's digit (1 stdout, 2 stderr) and what the tool wrote to it
    S  supervisor -> engine  skipped output: the stream's digit and the number of bytes that were left out
    W  supervisor -> engine  the worker is about to be started
    X  supervisor -> engine  the end: the worker's exit code, the number of processes that survived, whether its channel was closed

Must not know how frames are sent.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callgate._runners.exception_results import message_of
from callgate._runners.return_values import UNREADABLE, execution_unreadable
from callgate.calls import Scope
from callgate.protocols import Execution

__all__ = ["LOST_CHANNEL", "CallMessage", "ProgressMessage", "WorkerExit", "decode_call", "decode_piece", "encode", "read_execution"]


class CallMessage(Struct, frozen=True, kw_only=True):
    """One attempt as plain data."""

    target: str
    """The import target of the tool; see `import_target`."""
    arguments: Raw
    scope: Scope
    extra: str
    """If the scope's `extra` cannot be sent: what it is (a live object, or too large). Otherwise empty."""
    call_id: str
    uid: str
    tool: str
    attempt: int
    key: str
    deadline: float
    """By `time.monotonic`, which all processes of a machine share. Another machine sets its own."""
    show_kill_hint: bool
    max_bytes: int
    """The largest result that is sent back, in bytes."""
    cpu_s: int | None


class ProgressMessage(Struct, frozen=True, array_like=True):
    """A piece of progress, numbered from 1 within the call."""

    seq: int
    text: str
    stream: str


class WorkerExit(Struct, frozen=True):
    """How a worker ended."""

    code: int
    """The exit code. A negative number is the signal that ended the worker."""
    survivors: int
    closed_channel: bool

    @classmethod
    def read(cls, body: bytes) -> WorkerExit:
        code, survivors, closed = body.split()
        return cls(int(code), int(survivors), closed == b"1")


LOST_CHANNEL = 97
"""The exit code of a worker that cannot send its result, because its tool has closed the channel."""

encode = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(CallMessage).decode
decode_piece = msgspec.json.Decoder(ProgressMessage).decode
_decode_execution = msgspec.json.Decoder(Execution).decode


def read_execution(body: bytes | Raw) -> Execution:
    """Decode the execution that a worker sent; a value that is nested too deep becomes an error of the tool.

    Raises:
        msgspec.DecodeError: It is not an execution.
    """
    try:
        execution = _decode_execution(body)
        status = "returned" if execution.error_type == UNREADABLE else execution.status
        return replace(execution, status=status, read=True)  # a decoded value is plain data, whatever the worker claims
    except RecursionError as error:
        return execution_unreadable(f"The tool's result cannot be read back: {message_of(error).rstrip('.')}.")
