"""The seam that a model plugs into: one method, and the context it streams in.

A model turns a request into events and beats while it is alive; limits of time, stop and kill belong to whoever streams it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from callgate._abort_signals import AbortSignal
from callgate.models.events import ModelEvent
from callgate.models.wire.request import ModelRequest

__all__ = ["Model", "StreamingContext"]


class StreamingContext:
    """What a pass of a model may use: one object per turn, the same for every pass and for the tools.

    `abort_signal`, `on_progress` and `silence_s` are set for one pass and taken away after it, whatever happens.
    """

    __slots__ = ("abort_signal", "conversation", "extra", "on_progress", "reply_to", "silence_s")

    def __init__(self, conversation: str = "", *, reply_to: str | None = None, extra: object = None) -> None:
        self.conversation = conversation
        self.reply_to = reply_to
        """The host's id of the message that the turn answers; None where it answers none in particular."""
        self.extra = extra
        """The host's own, untouched."""
        self.abort_signal: AbortSignal | None = None
        """Fires when this pass is over before the model is: close the connection."""
        self.on_progress: Callable[[], None] | None = None
        """Call it at every sign of life; the limit on silence starts anew."""
        self.silence_s: float | None = None
        """How long this pass may be silent; None: nobody watches it."""

    def beat(self) -> None:
        """Tell that the model is alive."""
        if self.on_progress is not None:
            self.on_progress()


class Model(Protocol):
    """Something that answers conversations."""

    @property
    def provider(self) -> str:
        """Who serves it: `openai`, `ollama`, `scripted`."""
        ...

    @property
    def name(self) -> str:
        """The provider's name for the model."""
        ...

    @property
    def native_tools(self) -> bool:
        """Whether calls travel in the API's own form. Otherwise tools are taught in the prompt and calls are read from the text."""
        ...

    def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        """Answer once. The last event is `Finished`.

        A failure that the provider reports is a `Fault`, and `Finished` with reason `error`; what cannot be told so is raised.
        Must beat at every sign of life, and must end soon after `context.abort_signal` fires or its task is cancelled.
        """
        ...
