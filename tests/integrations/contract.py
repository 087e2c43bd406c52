"""What every wrapper of another framework promises. The suite of each framework subclasses `WrapperContract`.

A suite drives the real framework with a model that follows a script. It enters through the framework's own way to run
an agent and to answer a question, and asserts what the model reads, what the tools did, and what the journal has.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec import Struct

from callgate import Allow, Ask, Deny, Engine, MemoryJournal, after_call
from callgate.integrations import import_tools
from callgate.protocols import Verdict
from callgate.stage_types import Checked, ValidatedCall
from tests.waiting import PATIENCE_S, soon

__all__ = ["Call", "Said", "Told", "WrapperContract", "WrittenPolicy"]


_ICON = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Call(Struct, frozen=True):
    """A call that the model makes."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = "c1"


class Told(Struct, frozen=True):
    """The result of a call, as the model reads it."""

    text: str
    is_error: bool


class Said(Struct, frozen=True):
    """What a human says about a call: yes, yes with other arguments, or no with a reason."""

    allow: bool
    arguments: dict[str, Any] | None = None
    reason: str = ""


class WrittenPolicy(Struct):
    """A policy with a verdict for some tools; it allows the others."""

    verdicts: Mapping[str, Verdict]

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.verdicts.get(call.tool.name, Allow(rule="others"))


class WrapperContract(ABC):
    """The promises of a wrapper. `run` and `make_again` are how a suite drives its framework."""

    @abstractmethod
    def tool(self, function: Callable[..., Any]) -> Any:
        """Return the framework's own tool for a function with a docstring."""

    @abstractmethod
    async def run(
        self,
        engine: Engine,
        tools: Sequence[Any],
        message: Sequence[Call],
        *,
        then: Sequence[Sequence[Call]] = (),
        says: Mapping[str, Said] | None = None,
    ) -> dict[str, Told]:
        """Run an agent whose model makes these calls in one message and then ends. Return the results by call id.

        Args:
            then: The messages that the model makes after that, before it ends.
            says: What a human says about calls that wait for one, by call id. Without it, no call waits.
        """

    @abstractmethod
    async def make_again(self, engine: Engine, tools: Sequence[Any], message: Sequence[Call]) -> list[dict[str, Told]]:
        """Run an agent whose model makes these calls in one message, twice, as the framework does when it resumes a step.

        Return the results of both.
        """

    # The promises

    async def test_a_call_runs_once_and_each_step_of_it_is_in_the_journal(self) -> None:
        ledger: list[str] = []

        async def refund(order: str) -> str:
            """Refund an order."""
            ledger.append(order)
            return f"{order} refunded"

        journal = MemoryJournal()
        tools = [self.tool(refund)]
        async with Engine(import_tools(tools), journal=journal) as engine:
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})])
        assert told == {"c1": Told("A7 refunded", is_error=False)}
        assert ledger == ["A7"]
        assert [event.kind for event in journal.read()] == ["call.received", "call.started", "call.completed"]

    async def test_a_result_that_looks_like_an_image_is_the_frameworks_and_is_the_same_when_the_call_is_made_again(self) -> None:
        async def icon() -> str:
            """Return an icon."""
            return _ICON

        async def page() -> dict[str, str]:
            """Return a page with an icon."""
            return {"type": "image", "image_url": _ICON, "title": "May"}

        tools = [self.tool(icon), self.tool(page)]
        async with Engine(import_tools(tools), journal=MemoryJournal()) as engine:
            twice = await self.make_again(engine, tools, [Call("icon"), Call("page", id="c2")])
        assert [told[call].text.count(_ICON) for told in twice for call in ("c1", "c2")] == [1] * 4

    async def test_a_tool_that_raises_gives_an_error_that_the_model_can_act_on_and_the_run_continues(self) -> None:
        async def look(item: str) -> str:
            """Look at an item."""
            raise LookupError(f"there is no {item}")

        async def refund(order: str) -> str:
            """Refund an order."""
            raise RuntimeError("the connection was closed")

        tools = [self.tool(look), self.tool(refund)]
        async with Engine(import_tools(tools, {"look": "none"})) as engine:
            told = await self.run(engine, tools, [Call("look", {"item": "pear"}), Call("refund", {"order": "A7"}, "c2")])
        assert told["c1"].is_error
        assert "there is no pear" in told["c1"].text
        assert told["c2"].is_error
        assert "It may have taken effect. It was not run again." in told["c2"].text

    async def test_a_call_that_finishes_after_a_stop_gives_its_result(self) -> None:
        async def refund(order: str) -> str:
            """Refund an order."""
            for conversation in ("", next(iter(engine.journal.read())).run):  # each framework names one of them
                engine.control.stop(conversation, "the shop is closed")
            return f"{order} refunded"

        tools = [self.tool(refund)]
        engine = Engine(import_tools(tools), journal=MemoryJournal())
        async with engine:
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"}), Call("refund", {"order": "B8"}, "c2")])
        assert told["c1"] == Told("A7 refunded", is_error=False)
        assert "the shop is closed" in told["c2"].text

    async def test_a_call_that_a_kill_ended_may_have_taken_effect(self) -> None:
        async def refund(order: str) -> str:
            """Refund an order."""
            for conversation in ("", next(iter(engine.journal.read())).run):  # each framework names one of them
                engine.control.kill(conversation, "the shop is closed")
            await asyncio.Event().wait()
            return "never"

        tools = [self.tool(refund)]
        engine = Engine(import_tools(tools), journal=MemoryJournal())
        async with engine:
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})])
        assert told["c1"].is_error
        assert "had started and may have taken effect" in told["c1"].text
        assert "gave no result" not in told["c1"].text

    async def test_a_call_whose_result_has_no_json_form_is_not_in_doubt(self) -> None:
        """A framework may write the result as text; else the model is told what is wrong with it."""

        async def refund(order: str) -> Any:
            """Refund an order."""
            return {"receipt": object()}

        tools = [self.tool(refund)]
        async with Engine(import_tools(tools)) as engine:
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})])
        assert "may have taken effect" not in told["c1"].text
        assert ("The call did run" in told["c1"].text) == told["c1"].is_error

    async def test_an_async_tool_that_hangs_ends_at_its_deadline_and_the_run_continues(self) -> None:
        ended: list[str] = []

        async def hang() -> str:
            """Hang."""
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("hang")
            return "never"

        tools = [self.tool(hang)]
        async with Engine(import_tools(tools, {"hang": "none"}, options={"hang": {"timeout_s": 0.1}})) as engine:
            told = await asyncio.wait_for(self.run(engine, tools, [Call("hang")]), PATIENCE_S)
        assert told["c1"].is_error
        assert "did not end within 0.1 s" in told["c1"].text
        assert ended == ["hang"]

    async def test_a_sync_tool_that_hangs_ends_at_its_deadline_and_its_code_counts_as_abandoned_once_until_its_late_answer(self) -> None:
        go_on = threading.Event()

        def hang() -> str:
            """Hang."""
            go_on.wait(PATIENCE_S)
            return "late"

        tools = [self.tool(hang)]
        try:
            async with Engine(import_tools(tools, {"hang": "none"}, options={"hang": {"timeout_s": 0.1}})) as engine:
                told = await asyncio.wait_for(self.run(engine, tools, [Call("hang")]), PATIENCE_S)
                assert told["c1"].is_error
                assert "Its code could not be stopped and went on" in told["c1"].text
                assert engine.abandoned == 1
                go_on.set()
                assert await soon(lambda: engine.abandoned == 0)
                assert "call.late" in [event.kind for event in engine.journal.read()]
        finally:
            go_on.set()

    async def test_a_call_that_is_made_again_gets_the_stored_result(self) -> None:
        ledger: list[str] = []

        async def refund(order: str) -> str:
            """Refund an order."""
            ledger.append(order)
            return f"{order} refunded as number {len(ledger)}"

        async def look(item: str) -> str:
            """Look at an item."""
            return f"a {item}"

        tools = [self.tool(refund), self.tool(look)]
        async with Engine(import_tools(tools, {"look": "none"})) as engine:
            calls = [Call("refund", {"order": "A7"}), Call("look", {"item": "pear"}, "c2")]
            first, second = await self.make_again(engine, tools, calls)
        assert first == second == {"c1": Told("A7 refunded as number 1", is_error=False), "c2": Told("a pear", is_error=False)}
        assert ledger == ["A7"]

    async def test_a_call_that_is_made_again_after_an_unknown_outcome_does_not_run(self) -> None:
        ledger: list[str] = []

        async def refund(order: str) -> str:
            """Refund an order."""
            ledger.append(order)
            raise RuntimeError("the connection was closed")

        tools = [self.tool(refund)]
        async with Engine(import_tools(tools)) as engine:
            both = await self.make_again(engine, tools, [Call("refund", {"order": "A7"})])
        assert [told["c1"].is_error for told in both] == [True, True]
        assert ledger == ["A7"]

    async def test_reads_of_a_message_run_beside_each_other(self) -> None:
        both = asyncio.Barrier(2)

        async def look(item: str) -> str:
            """Look at an item."""
            await asyncio.wait_for(both.wait(), PATIENCE_S)
            return item

        tools = [self.tool(look)]
        async with Engine(import_tools(tools, {"look": "none"})) as engine:
            told = await self.run(engine, tools, [Call("look", {"item": "pear"}, "c1"), Call("look", {"item": "plum"}, "c2")])
        assert told == {"c1": Told("pear", is_error=False), "c2": Told("plum", is_error=False)}

    async def test_effects_of_a_message_do_not_run_beside_each_other(self) -> None:
        running, most = 0, 0

        async def refund(order: str) -> str:
            """Refund an order."""
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(10):
                await asyncio.sleep(0)
            running -= 1
            return order

        tools = [self.tool(refund)]
        async with Engine(import_tools(tools)) as engine:
            told = await self.run(engine, tools, [Call("refund", {"order": f"A{number}"}, f"c{number}") for number in range(4)])
        assert {one.text for one in told.values()} == {"A0", "A1", "A2", "A3"}
        assert most == 1

    async def test_a_denied_call_does_not_run_and_the_model_reads_why(self) -> None:
        ledger: list[str] = []

        async def refund(order: str) -> str:
            """Refund an order."""
            ledger.append(order)
            return "done"

        journal = MemoryJournal()
        tools = [self.tool(refund)]
        policy = WrittenPolicy({"refund": Deny(reason="refunds are closed", rule="closed")})
        async with Engine(import_tools(tools), policies=[policy], journal=journal) as engine:
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})])
        assert told["c1"].is_error
        assert "refunds are closed" in told["c1"].text
        assert not ledger
        assert "call.completed" in [event.kind for event in journal.read()]

    async def test_a_hook_that_changes_a_result_changes_what_the_model_reads(self) -> None:
        async def look(item: str) -> str:
            """Look at an item."""
            return f"{item}, secret"

        @after_call(kind="transform")
        def hide(call: ValidatedCall, result: Checked) -> str:
            return str(result.value).replace("secret", "hidden")

        tools = [self.tool(look)]
        async with Engine(import_tools(tools, {"look": "none"}), hooks=[hide]) as engine:
            told = await self.run(engine, tools, [Call("look", {"item": "pear"})])
        assert told["c1"] == Told("pear, hidden", is_error=False)

    # Approvals, as the framework asks for them

    async def test_a_human_approves_a_call_in_the_frameworks_own_way_and_it_runs_once(self) -> None:
        ledger, engine, tools = self._asking()
        async with engine:
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})], says={"c1": Said(allow=True)})
        assert told == {"c1": Told("A7 refunded", is_error=False)}
        assert ledger == ["A7"]

    async def test_a_human_approves_a_call_with_other_arguments_and_the_model_is_told(self) -> None:
        ledger, engine, tools = self._asking()
        async with engine:
            says = {"c1": Said(allow=True, arguments={"order": "B8"})}
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})], says=says)
        assert told["c1"].text.startswith("B8 refunded")
        assert 'approved it with {"order":"B8"}' in told["c1"].text
        assert not told["c1"].is_error
        assert ledger == ["B8"]

    async def test_a_human_rejects_a_call_and_the_model_reads_the_reason(self) -> None:
        ledger, engine, tools = self._asking()
        async with engine:
            says = {"c1": Said(allow=False, reason="the order is too old")}
            told = await self.run(engine, tools, [Call("refund", {"order": "A7"})], says=says)
        assert "the order is too old" in told["c1"].text
        assert not ledger

    async def test_each_equal_call_of_a_later_message_is_asked_about_whatever_was_said_about_the_one_before(self) -> None:
        """A framework may tell the model about a no itself, and never make the call again."""
        ledger, engine, tools = self._asking()
        says = {"c1": Said(allow=False, reason="too early"), "c2": Said(allow=False, reason="still too early"), "c3": Said(allow=True)}
        first, *then = ([Call("refund", {"order": "A7"}, call_id)] for call_id in says)
        async with engine:
            told = await self.run(engine, tools, first, then=then, says=says)
        assert "too early" in told["c1"].text
        assert "still too early" in told["c2"].text
        assert told["c3"] == Told("A7 refunded", is_error=False)
        assert ledger == ["A7"]

    def _asking(self) -> tuple[list[str], Engine, list[Any]]:
        ledger: list[str] = []

        async def refund(order: str) -> str:
            """Refund an order."""
            ledger.append(order)
            return f"{order} refunded"

        tools = [self.tool(refund)]
        policy = WrittenPolicy({"refund": Ask(question="Refund it?", rule="ask")})
        return ledger, Engine(import_tools(tools), policies=[policy]), tools

    # Mistakes of developers

    async def test_a_second_agents_other_tool_of_the_same_name_is_refused_with_what_to_do(self) -> None:
        ledger: list[str] = []

        def tool_of(code: Callable[..., Any]) -> Any:
            code.__name__ = code.__qualname__ = "process"
            return self.tool(code)

        async def ship(order: str) -> str:
            """Ship an order."""
            ledger.append(f"{order} shipped")
            return f"{order} shipped"

        async def pay(cents: int) -> str:
            """Pay an order."""
            ledger.append(f"{cents} paid")
            return f"{cents} paid"

        async with Engine() as engine:
            await self.run(engine, [tool_of(ship)], [Call("process", {"order": "A7"})])
            with pytest.raises(Exception, match=r"already has another tool 'process' .*Give one of them another name"):
                await self.run(engine, [tool_of(pay)], [Call("process", {"cents": 5}, "c2")])
        assert ledger == ["A7 shipped"]

    async def test_a_closed_engine_is_an_error_for_the_developer_and_no_result_for_the_model(self) -> None:
        ledger: list[str] = []

        async def refund(order: str) -> str:
            """Refund an order."""
            ledger.append(order)
            return f"{order} refunded"

        tools = [self.tool(refund)]
        async with Engine(import_tools(tools)) as engine:
            await self.run(engine, tools, [Call("refund", {"order": "A7"})])
        with pytest.raises(Exception, match="This engine is closed"):
            await self.run(engine, tools, [Call("refund", {"order": "B8"}, "c2")])
        assert ledger == ["A7"]

    async def test_a_tool_that_the_engine_does_not_have_is_registered_as_once(self) -> None:
        async def refund(order: str) -> str:
            """Refund an order."""
            return f"{order} refunded"

        async with Engine() as engine:
            told = await self.run(engine, [self.tool(refund)], [Call("refund", {"order": "A7"})])
            registered = engine.tools.get("refund")
        assert told == {"c1": Told("A7 refunded", is_error=False)}
        assert registered is not None
        assert registered.effect == "once"
