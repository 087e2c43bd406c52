"""Run tools on another machine: what a runner of your own sends, what it gets back, and both ends of it.

    engine  -> your runner: `Attempt`  -- messages, over whatever you have -->  your far side: `Workers`  -> a worker process

The messages are values, and this package makes bytes of them; how the bytes travel is yours. `Attempt` decides on the near side what an
attempt came to, whatever becomes of the connection; `Workers` runs it on the far side in a process that can be stopped. Progress is
numbered, the deadline and the kill are kept by both sides, and only plain values cross.
"""

from __future__ import annotations

from callgate._runners.process.protocol import CallMessage
from callgate.remote.attempt import Attempt, Reach, Send, target_of
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
