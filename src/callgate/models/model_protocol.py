"""The `Model` protocol, and the context that one pass of a model streams in.

A model turns a request into events and reports progress while it is alive; the caller enforces time limits, stop and kill.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from callgate._abort_signals import AbortSignal
from callgate.models.model_events import ModelEvent
from callgate.models.wire.request import ModelRequest

__all__ = ["Model", "StreamingContext"]


class StreamingContext:
    """The context that a model's stream and the tools can use. One object serves all passes of a turn.

    `abort_signal`, `on_progress` and `silence_s` are set for one pass and always removed after it.
    """

    __slots__ = ("abort_signal", "conversation", "extra", "on_progress", "reply_to", "silence_s")

    def __init__(self, conversation: str = "", *, reply_to: str | None = None, extra: object = None) -> None:
        self.conversation = conversation
        self.reply_to = reply_to
        """The host's id of the message that the turn replies to; None if it replies to none in particular."""
        self.extra = extra
        """The host's own value, passed through unchanged."""
        self.abort_signal: AbortSignal | None = None
        """Fires when the pass has to end before the model's answer does. The model must then close its connection."""
        self.on_progress: Callable[[], None] | None = None
        """Called whenever the model shows that it is alive. Restarts the limit on silence."""
        self.silence_s: float | None = None
        """How long this pass may be silent; None if silence is not limited."""

    def beat(self) -> None:
        """Report that the model is alive."""
        if self.on_progress is not None:
            self.on_progress()


class Model(Protocol):
    """Answers conversations."""

    @property
    def provider(self) -> str:
        """The provider's name: `openai`, `ollama`, `scripted`."""
        ...

    @property
    def name(self) -> str:
        """The provider's name for the model."""
        ...

    @property
    def native_tools(self) -> bool:
        """Whether tools and calls are sent in the provider's own API fields.

        Otherwise the prompt describes the tools, and calls are read from the model's text.
        """
        ...

    def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        """Answer once. The last event is `Finished`.

        A failure that the provider reports becomes a `Fault` and a `Finished` with the reason `error`; other failures
        are raised. A model must call `context.beat()` whenever it receives anything, and must end soon after
        `context.abort_signal` fires or its task is cancelled.
        """
        ...
