"""The six messages between the two sides, as values and as bytes.

    Start    near -> far  start an attempt now
    Stop     near -> far  end the attempt: its deadline has passed, or it was killed
    Piece    far -> near  a numbered piece of progress
    Late     far -> near  the tool's answer after it was stopped; before `Ended`
    Ended    far -> near  the outcome of the attempt; its last message
    Refused  far -> near  no further message is accepted on this connection, with the reason

A message is JSON, so that any queue and any language can transport it. Must not know how messages are transported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

import msgspec
from msgspec import Raw, Struct

from callgate._runners.process.worker_protocol import CallMessage, read_execution
from callgate.errors import CallgateError
from callgate.protocols import Execution

__all__ = [
    "Answer",
    "Ended",
    "Late",
    "Malformed",
    "Order",
    "OutputPiece",
    "Refused",
    "Start",
    "Stop",
    "decode_answer",
    "decode_order",
    "encode",
]

M = TypeVar("M")


class Malformed(CallgateError):
    """The other side sent bytes that are not one of these messages.

    Close the connection, because nothing that follows can be trusted.
    """

    code = "malformed_message"


class Start(Struct, frozen=True, kw_only=True, tag="start"):
    """Starts an attempt now."""

    id: str
    """Chosen by the near side; the attempt's id in all later messages."""
    call: CallMessage
    """The call. Its `key` is the idempotency key, which is the same for every attempt of the call."""
    timeout_s: float
    """The remaining time in seconds. A duration and not a time of day, because the clocks of two machines differ."""
    grace_s: float
    """The time in seconds between asking the tool to stop and terminating its process."""


class Stop(Struct, frozen=True, kw_only=True, tag="stop"):
    """Ends an attempt.

    It is not an error if the attempt has ended or never started, because both sides may have sent a message at once.
    """

    id: str
    reason: str


class OutputPiece(Struct, frozen=True, kw_only=True, tag="piece"):
    """Progress or output of the tool."""

    id: str
    seq: int
    """The number of the piece, from 1 within the attempt. A gap means that pieces were left out; a repeated number
    is ignored.
    """
    text: str
    stream: str


class _ExecutionBody(Struct, frozen=True, kw_only=True):
    """An encoded `Execution`. It is decoded on request, so that an invalid one affects only its call."""

    id: str
    body: Raw

    @classmethod
    def of(cls, id: str, execution: Execution) -> Self:
        return cls(id=id, body=Raw(encode(execution)))

    def execution(self) -> Execution:
        """
        Raises:
            Malformed: It is not a valid execution.
        """
        return _read(read_execution, self.body)


class Late(_ExecutionBody, frozen=True, kw_only=True, tag="late"):
    """The tool's answer after it was stopped. The near side records it and never uses it."""


class Ended(_ExecutionBody, frozen=True, kw_only=True, tag="ended"):
    """The outcome of an attempt."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """No further message is accepted on this connection."""

    why: str


Order = Start | Stop
Answer = OutputPiece | Late | Ended | Refused

encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
"""Return a message as bytes. Raises if its text is not valid Unicode or `extra` is nested too deeply; then nothing was sent."""

_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def decode_order(body: bytes) -> Order:
    """Decode a message of the near side.

    Raises:
        Malformed: It is not a message of the near side.
    """
    return _read(_orders.decode, body)


def decode_answer(body: bytes) -> Answer:
    """Decode a message of the far side.

    Raises:
        Malformed: It is not a message of the far side.
    """
    return _read(_answers.decode, body)


def _read(decoder: Callable[[bytes | Raw], M], body: bytes | Raw) -> M:
    try:
        return decoder(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"The received data is not a message of the other side: {error}. Do both sides run the same version?") from error
