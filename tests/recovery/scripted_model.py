"""Scripts for a model, and a model that follows them. It is a function of the conversation, so a resumed run meets the same model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from hypothesis import strategies as st
from msgspec import Struct

from callgate import ToolResult
from callgate.messages import AssistantMessage, Message, ToolMessage, UserMessage
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from tests.agent.scripted_model import call, says
from tests.canonical_json import canonical
from tests.recovery.simulated_world import TOOLS

__all__ = ["SCRIPT", "Player", "Script", "Wanted", "assert_valid", "facts_of", "names"]


class Wanted(Struct, frozen=True):
    """A call that the model will make."""

    tool: str
    kind: str
    """`plain`, `asked`, `denied`, or `again` for the argument of the previous call."""


Script = tuple[tuple[Wanted, ...], ...]
WANTED = st.builds(Wanted, tool=st.sampled_from(list(TOOLS)), kind=st.sampled_from(["plain", "plain", "plain", "asked", "denied", "again"]))
SCRIPT = st.lists(st.lists(WANTED, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple)


class Player:
    """A model that follows the script named by the latest task in the conversation, one message per turn."""

    provider, name, native_tools = "scripted", "player", True

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = scripts

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        messages = list(request.messages)
        assert_valid(messages)
        tasks = [(at, message.content) for at, message in enumerate(messages) if isinstance(message, UserMessage)]
        at, said = [(at, said) for at, said in tasks if isinstance(said, str) and said.startswith("task ")][-1]
        task = int(said.split()[1])
        turn = sum(isinstance(message, AssistantMessage) and bool(message.calls) for message in messages[at:])
        script = self._scripts[task]
        if turn >= len(script):
            steps = says("Done.")
        else:
            named = zip(script[turn], names(task, script)[turn], strict=True)
            steps = says(*(call(one.tool, {"what": what}, id=f"c{at}", position=at) for at, (one, what) in enumerate(named)))
        for step in steps:
            yield step  # type: ignore[misc]


def names(task: int, script: Script) -> list[list[str]]:
    """Return the argument of each call of a script: a new one, or that of the previous call."""
    named: list[list[str]] = []
    last: dict[str, str] = {}
    for turn, message in enumerate(script):
        named.append([])
        for at, wanted in enumerate(message):
            fresh = f"{wanted.kind} {task}.{turn}.{at}"
            what = last.get(wanted.tool, fresh) if wanted.kind == "again" else fresh
            last[wanted.tool] = what
            named[-1].append(what)
    return named


def assert_valid(messages: Sequence[Message]) -> None:
    """Check that each call has exactly one result, in the right place."""
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert owed, messages
            assert owed.pop(0) == message.call_id, messages
        else:
            assert not owed, messages
            owed = [one.id for one in message.calls] if isinstance(message, AssistantMessage) else []
    assert not owed, messages


def facts_of(result: ToolResult) -> bytes:
    """Return a result's fields without the text that the loop may add for the model."""
    return canonical((result.status, result.structured, result.error, result.code, result.metadata.attempts))
