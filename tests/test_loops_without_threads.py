"""An engine in an event loop that cannot be called from threads, such as that in which Temporal runs the code of a workflow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, UsageError, tool


@tool(effect="none")
def read(name: str) -> str:
    """Read a file."""
    return name


loop_without_threads: Any = type("LoopWithoutThreads", (asyncio.AbstractEventLoop,), {"get_debug": lambda _: False})
"""Has only what a coroutine needs that does not wait."""


def test_an_engine_refuses_an_event_loop_without_threads_instead_of_waiting_for_ever() -> None:
    engine = Engine([read])
    calling = engine.call(RawCall(name="read", arguments={"name": "a"}), Scope())
    asyncio.events._set_running_loop(loop_without_threads())
    try:
        with pytest.raises(UsageError, match="Call the engine in an activity"):
            calling.send(None)
    finally:
        asyncio.events._set_running_loop(None)
        calling.close()
    engine.close_sync()
