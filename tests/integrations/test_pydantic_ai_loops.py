"""Programs that run agents of Pydantic AI with `run_sync`, which has an event loop only while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.tools import Tool

from callgate import Engine, UsageError
from callgate.integrations.pydantic_ai import CallgateCapability, recorded_answers
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in
from tests.waiting import PATIENCE_S

_made: list[str] = []


def pay(invoice: str) -> str:
    """Pay an invoice."""
    _made.append(invoice)
    return f"{invoice} paid"


@pytest.fixture(autouse=True)
def _none_made() -> None:
    _made.clear()


def _closing_loop(work: Callable[[], str]) -> str:
    """Do work in this thread, and close the event loop that `run_sync` leaves there."""
    try:
        return work()
    finally:
        asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)


def _run_and_deny() -> str:
    engine = Engine()
    asks = CallgateCapability(engine, options={"pay": {"requires_approval": True}})
    model = scripted([Call("pay", {"invoice": "A7"})], "done")
    agent = Agent(model, tools=[Tool(pay)], capabilities=[asks], output_type=[str, DeferredToolRequests])
    first = agent.run_sync("go")
    assert isinstance(first.output, DeferredToolRequests)
    approval_id = first.output.metadata["c1"]["approval_id"]
    assert engine.wait_for_answer_sync(approval_id, timeout_s=0.01) is None
    engine.deny_sync(approval_id, by="ann")
    second = agent.run_sync(message_history=first.all_messages(), deferred_tool_results=recorded_answers(first.output))
    engine.close_sync()
    return told_in(second.all_messages())["c1"].text


def test_a_question_is_answered_between_two_runs_without_an_event_loop() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert "ann said no" in thread.submit(_closing_loop, _run_and_deny).result(PATIENCE_S)
    assert _made == []


class SlowlyRegistering(Engine):
    """Registers a tool when the other thread registers it as well, or has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Semaphore(0)

    def register(self, tool: Any, *, layer: Any = "builtin") -> None:
        self.go_on.release()
        assert self.go_on.acquire(timeout=PATIENCE_S)
        assert self.go_on.acquire(timeout=PATIENCE_S)
        self.go_on.release(2)
        super().register(tool, layer=layer)


def test_one_engine_in_two_threads_is_refused_because_of_the_other_event_loop() -> None:
    engine, both = SlowlyRegistering(), threading.Barrier(2)
    model = scripted([Call("pay", {"invoice": "A7"})], "done")
    agent = Agent(model, tools=[Tool(pay)], capabilities=[CallgateCapability(engine)])

    def run() -> str:
        both.wait(PATIENCE_S)
        try:
            return str(agent.run_sync("go").output)
        except UsageError as error:
            return str(error)
        finally:
            engine.go_on.release()

    with ThreadPoolExecutor(2) as threads:
        ends = sorted(future.result(PATIENCE_S) for future in [threads.submit(_closing_loop, run), threads.submit(_closing_loop, run)])
    engine.close_sync()
    assert "belongs to another event loop" in ends[0]
    assert ends[1] == "done"
    assert _made == ["A7"]
