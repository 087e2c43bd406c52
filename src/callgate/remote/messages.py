"""What the two sides say to each other: six messages, as values and as bytes.

    Start    near -> far  one attempt, to be begun at once
    Stop     near -> far  its deadline has passed, or it was killed: end it
    Piece    far -> near  a piece of progress, numbered
    Late     far -> near  what the tool answered although it had been stopped; before `Ended`
    Ended    far -> near  what the attempt came to; the last word about it
    Refused  far -> near  nothing more is taken over this connection, and why

A message is JSON, so that any queue and any language can carry it. Must not know how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

import msgspec
from msgspec import Raw, Struct

from callgate._runners.process.protocol import CallMessage, read_execution
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
    """The other side sent what is no message of these. Nothing that follows can be trusted: end the connection."""

    code = "malformed_message"


class Start(Struct, frozen=True, kw_only=True, tag="start"):
    """One attempt, to be begun at once."""

    id: str
    """The near side's own; names the attempt in all that follows."""
    call: CallMessage
    """Its `key` is the idempotency key; the same on every attempt of the call."""
    timeout_s: float
    """Until the attempt must be over, from now: clocks of two machines are not compared."""
    grace_s: float
    """Between telling the tool to stop and ending it."""


class Stop(Struct, frozen=True, kw_only=True, tag="stop"):
    """End an attempt. One that has ended, or never began, is no error: the messages crossed."""

    id: str
    reason: str


class OutputPiece(Struct, frozen=True, kw_only=True, tag="piece"):
    """Progress, or what the tool writes."""

    id: str
    seq: int
    """From 1 within the attempt. A gap: pieces were left out. A number that was there before: sent again, and ignored."""
    text: str
    stream: str


class _ExecutionBody(Struct, frozen=True, kw_only=True):
    """An `Execution` on its way. It stays JSON until it is asked for: one that cannot be read back harms no other call."""

    id: str
    body: Raw

    @classmethod
    def of(cls, id: str, execution: Execution) -> Self:
        return cls(id=id, body=Raw(encode(execution)))

    def execution(self) -> Execution:
        """
        Raises:
            Malformed: It is none.
        """
        return _read(read_execution, self.body)


class Late(_ExecutionBody, frozen=True, kw_only=True, tag="late"):
    """What the tool answered although it had been stopped. Recorded by the near side, never used."""


class Ended(_ExecutionBody, frozen=True, kw_only=True, tag="ended"):
    """What an attempt came to."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """Nothing more is taken over this connection."""

    why: str


Order = Start | Stop
Answer = OutputPiece | Late | Ended | Refused

encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
"""A message as bytes. Raises where its text is no Unicode or `extra` is nested too deep; then nothing was sent."""

_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def decode_order(body: bytes) -> Order:
    """Read what the near side sent.

    Raises:
        Malformed: It is no message of the near side's.
    """
    return _read(_orders.decode, body)


def decode_answer(body: bytes) -> Answer:
    """Read what the far side sent.

    Raises:
        Malformed: It is no message of the far side's.
    """
    return _read(_answers.decode, body)


def _read(decoder: Callable[[bytes | Raw], M], body: bytes | Raw) -> M:
    try:
        return decoder(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"What arrived is no message of the other side's: {error}. Do both sides run the same version?") from error
