"""The route of an engine, built from its parts without an `Engine`."""

from __future__ import annotations

import gc
import inspect
import traceback
from collections.abc import Iterator
from typing import get_type_hints

from callgate import Answered, Engine, Limits, RawCall, Scope, tool
from callgate._abort_signals import AbortSignal
from callgate._pipeline.engine_assembly import EngineParts, HostOptions
from callgate._pipeline.engine_context import EngineContext
from callgate.mcp import McpServer, ServerContent
from callgate.plugins import Plugin
from callgate.response_calls import ResponseReply
from callgate.response_streams import WatchedStream


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def parts_of() -> EngineParts:
    context = EngineContext.of(journal=None, blobs=None, clock=None, limits=Limits(), timeout_s=5.0, redactor=None)
    return EngineParts.of(context, HostOptions(tools=(add,)))


async def test_a_route_built_from_engine_parts_runs_a_call() -> None:
    parts = parts_of()
    await parts.admission.open(Scope())
    outcome = await parts.route.call(RawCall(name="add", arguments='{"a": 2, "b": 3}', id="1"), Scope(), AbortSignal())
    assert isinstance(outcome, Answered)
    assert outcome.result.structured == 5
    kinds = [event.kind for event in parts.context.journal.read()]
    assert kinds[0] == "call.received"
    assert kinds[-1] == "call.completed"
    await parts.lifecycle.close()
    assert parts.lifecycle.closed


def test_engine_parts_have_no_reference_cycles() -> None:
    """Each part refers only to parts that were made before it, so references form no cycle."""
    parts = parts_of()
    found = dict(_parts_below(parts))
    for part, below in found.items():
        seen, queue = set[int](), list(below)
        while queue:
            one = queue.pop()
            if one not in seen:
                seen.add(one)
                queue += found.get(one, ())
        assert part not in seen, f"{_named(parts, part)} refers to itself"


_IMPORTED_LATE = {
    "McpServer": McpServer,
    "Plugin": Plugin,
    "ProcessLimits": object,
    "ResponseReply": ResponseReply,
    "ServerContent": ServerContent,
    "WatchedStream": WatchedStream,
}


def test_no_public_engine_method_takes_or_returns_a_private_type() -> None:
    for name, method in inspect.getmembers(Engine, inspect.isfunction):
        if not name.startswith("_"):
            hints = get_type_hints(method, vars(inspect.getmodule(Engine)) | _IMPORTED_LATE)
            assert not [hint for hint in hints.values() if "_pipeline" in str(hint) or "_pipeline" in getattr(hint, "__module__", "")], name


def _parts_below(root: object) -> Iterator[tuple[int, list[int]]]:
    """Yield each reachable object of the pipeline's own classes with the objects that it refers to."""
    seen, queue = set[int](), [root]
    while queue:
        one = queue.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        below = list(_held(one))
        queue += below
        yield id(one), [id(other) for other in below]


def _held(part: object) -> Iterator[object]:
    """Yield the parts that a part refers to in a field, in a container, or as the object of a bound method."""
    seen, queue = set[int](), list(gc.get_referents(part))
    while queue:
        one = queue.pop()
        if id(one) in seen or isinstance(one, type) or inspect.ismodule(one) or inspect.isfunction(one):
            continue
        seen.add(id(one))
        if type(one).__module__.startswith(("callgate._pipeline", "callgate._runners")):
            yield one
        elif isinstance(one, (dict, list, tuple, set, frozenset)) or inspect.ismethod(one):
            queue += gc.get_referents(one)


def _named(root: object, wanted: int) -> str:
    queue, seen = [root], set[int]()
    while queue:
        one = queue.pop()
        if id(one) == wanted:
            return type(one).__qualname__
        if id(one) not in seen:
            seen.add(id(one))
            queue += _held(one)
    return "?"


async def test_local_variables_in_the_frames_of_a_call_do_not_list_all_tools() -> None:
    """An error monitor keeps the text of each local variable of each frame, so a call's frames must not grow with the engine's tools."""
    chars: list[int] = []

    @tool(effect="none")
    async def look() -> str:
        """Measure the local variables of the callers."""
        frames = traceback.StackSummary.extract(traceback.walk_stack(None), capture_locals=True)
        chars.append(sum(len(value) for frame in frames for value in (frame.locals or {}).values()))
        return "done"

    for others in (1, 200):
        tools = [look, *(tool(name=f"add_{number}", effect="none")(add.execute) for number in range(others))]
        async with Engine(tools) as engine:
            await engine.call(RawCall(name="look", arguments="{}", id="1"), Scope())
    few, many = chars
    assert many < 2 * few
