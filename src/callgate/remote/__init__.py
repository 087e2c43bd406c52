"""Run tools on another machine: the messages that a runner of your own transports, and the code for both ends.

    engine  -> your runner: `Attempt`  -- messages, over any transport -->  your remote program: `Workers`  -> a worker
        process

This package encodes the messages as bytes; you transport them. On the near side (the engine's machine), `Attempt`
returns the outcome of an attempt, also when the connection is lost. On the far side (the remote machine), `Workers`
runs the attempt in a process that can be stopped. Progress is numbered, both sides enforce the deadline and the kill,
and only plain values are transported.
"""

from __future__ import annotations

from callgate._runners.process.worker_protocol import CallMessage
from callgate.remote.frames import frame, read_frame
from callgate.remote.messages import (
    Answer,
    Ended,
    Late,
    Malformed,
    Order,
    OutputPiece,
    Refused,
    Start,
    Stop,
    decode_answer,
    decode_order,
    encode,
)
from callgate.remote.remote_attempt import Attempt, Reach, Send, target_of
from callgate.remote.workers import Workers

__all__ = [
    "Answer",
    "Attempt",
    "CallMessage",
    "Ended",
    "Late",
    "Malformed",
    "Order",
    "OutputPiece",
    "Reach",
    "Refused",
    "Send",
    "Start",
    "Stop",
    "Workers",
    "decode_answer",
    "decode_order",
    "encode",
    "frame",
    "read_frame",
    "target_of",
]
