"""Send a request to a model and collect the events."""

from __future__ import annotations

from typing import Any

from callgate import AbortController
from callgate.messages import UserMessage
from callgate.models.http_model import HttpModel
from callgate.models.http_transport import Retries, Transport
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.testing import Pause, ScriptedServer

__all__ = ["KEY", "NEVER", "NO_WAIT", "ONCE", "REQUEST", "abortable", "ask", "at"]

KEY = "sk-proj-not-to-be-shown-0123456789"
NEVER = Pause(86_400.0)
NO_WAIT = Retries(base_s=0.001)
ONCE = Retries(max_retries=0)
REQUEST = ModelRequest(model="", messages=[UserMessage("Find books.")], tools=(ToolSpec(name="search"), ToolSpec(name="files/read")))


def at(server: ScriptedServer | str, **transport: Any) -> HttpModel:
    """Return a model of an unknown provider at this server. Further options are passed to its `Transport`."""
    return HttpModel(
        "someone",
        "m",
        api="openai.chat",
        base_url=server if isinstance(server, str) else server.url,
        transport=Transport("someone", **transport),
        headers={"authorization": f"Bearer {KEY}"},
        key_name="SOMEONE_API_KEY",
    )


def abortable() -> tuple[AbortController, StreamingContext]:
    """Return a context for one pass, and the controller that aborts it."""
    controller, context = AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    return controller, context


async def ask(of: Model, request: ModelRequest = REQUEST, context: StreamingContext | None = None) -> list[ModelEvent]:
    """Return every event of one pass."""
    return [event async for event in of.stream(request, context or StreamingContext())]
