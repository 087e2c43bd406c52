"""A model with scripted answers. Gates and pauses in an answer let a test control when each part of the stream arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage
from callgate.models.model_events import CallOpened, CallSealed, Finished, FinishReason, ModelEvent, TextDelta, Usage
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest

__all__ = ["Answer", "Gate", "Pause", "Script", "Step", "call", "ends", "says", "tool_texts"]


class Gate:
    """A point at which a stream waits: it sets `reached`, and continues when the test sets `open`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()


class Pause:
    """A point in a stream at which the event loop runs and every due timer fires."""

    async def wait(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)


Step = ModelEvent | Gate | Pause | Exception | Callable[[StreamingContext], None]
Answer = Sequence[Step]


class Script:
    """A model that gives one scripted answer per pass and records the requests."""

    provider = "scripted"
    name = "script-1"
    native_tools = True

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.seen: list[list[Message]] = []
        """A copy of the conversation of each request."""
        self.contexts: list[StreamingContext] = []
        self.closed = 0
        """The number of passes that were closed before their end."""

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        self.seen.append(list(request.messages))
        self.requests.append(replace(request, messages=self.seen[-1]))
        self.contexts.append(context)
        answer = self._answers.pop(0)
        done = False
        try:
            for step in answer:
                if isinstance(step, Gate):
                    step.reached.set()
                    await step.open.wait()
                elif isinstance(step, Pause):
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                elif callable(step):
                    step(context)
                else:
                    done = done or isinstance(step, Finished)
                    yield step
            done = True
        finally:
            self.closed += not done


def call(name: str, arguments: object = None, *, id: str = "", position: int = 0) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(id=id or f"call-{name}-{position}", name=name, arguments=text)


def says(*parts: str | ToolCall, reason: FinishReason | None = None, usage: Usage | None = None) -> list[Step]:
    """Return the steps of a complete answer with these texts and calls, in this order."""
    steps: list[Step] = []
    made: list[Text | ToolCall] = []
    position = 0
    for part in parts:
        if isinstance(part, str):
            steps.append(TextDelta(part))
            made.append(Text(text=part))
        else:
            steps += [CallOpened(position, part.id, part.name), CallSealed(position, part, "sealed")]
            made.append(part)
            position += 1
    return [*steps, ends(*made, reason=reason, usage=usage)]


def ends(*parts: Text | ToolCall, reason: FinishReason | None = None, usage: Usage | None = None) -> Finished:
    calls = any(isinstance(part, ToolCall) for part in parts)
    return Finished(
        reason=reason or ("tool_calls" if calls else "stop"), message=AssistantMessage(parts=parts, api="scripted"), usage=usage
    )


def tool_texts(messages: Sequence[Message]) -> list[str]:
    """Return the texts of the results in a conversation, in order."""
    return [message.text for message in messages if isinstance(message, ToolMessage)]
