"""A run that waited for an approval resumes with everything that happened before, exactly once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Limits, SqliteJournal, Tool, tool
from callgate.agent import Agent, ContextRestarts, RunResult, Settings
from callgate.agent.recorded_run import load_run
from callgate.agent.repetition import StuckLimits
from callgate.errors import UsageError
from callgate.loop_decision import LoopRules
from callgate.messages import AssistantMessage, ToolMessage
from callgate.models.wire.request import ToolSpec
from tests.agent.scripted_model import Answer, Gate, Script, call, says, tool_texts
from tests.host_fakes import Asks


class Shop:
    """Tools, and a list of what they executed."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Tool]:
        shop = self

        @tool(effect="once")
        async def pay(to: str) -> str:
            """Pay somebody."""
            shop.done.append(f"pay {to}")
            return f"paid {to}"

        @tool(effect="none")
        async def look(what: str = "", depth: int = 1) -> str:
            """Look at something."""
            shop.done.append(f"look {what}")
            return "nothing"

        @tool(effect="none")
        async def fail() -> str:
            """Fail."""
            raise ValueError("broken")

        @tool(category="terminal")
        async def tell(text: str) -> str:
            """Tell somebody."""
            shop.done.append(f"tell {text}")
            return "told"

        @tool(category="dangerous")
        async def blast(what: str) -> str:
            """Do something dangerous."""
            shop.done.append(f"blast {what}")
            return "gone"

        return [pay, look, fail, tell, blast]


class Run:
    """A run that waits for an approval; it is answered and resumed here or by another engine on the same file."""

    def __init__(
        self, path: Path, *answers: Answer, asks: tuple[str, ...] = ("pay",), limits: Limits | None = None, **options: Any
    ) -> None:
        self.model = Script(*answers)
        self.shop = Shop()
        self._path = path / "journal.db"
        self._asks = asks
        self._limits = limits or Limits()
        self._options = options

    def engine(self) -> Engine:
        return Engine(self.shop.tools(), policies=[Asks(*self._asks)], journal=SqliteJournal(self._path), limits=self._limits)

    async def waits_and_goes_on(self, elsewhere: bool, *, allow: bool = True) -> RunResult:
        first = self.engine()
        agent = Agent(self.model, first, **self._options)
        waiting = await agent.run("Go.", conversation="c")
        assert (waiting.status, waiting.pending is not None) == ("waiting", True)
        if elsewhere:
            await first.close()
            first = self.engine()
            agent = Agent(self.model, first, **self._options)
        for approval in waiting.pending.approvals if waiting.pending is not None else ():
            await first.answer(approval.approval_id, allow=allow)
        result = await agent.resume(waiting.run if elsewhere else waiting)
        await first.close()
        return result


here_and_elsewhere = pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])


def pairs(result: RunResult) -> tuple[int, int]:
    """Return how many calls and how many results a conversation has."""
    calls = sum(len(message.calls) for message in result.messages if isinstance(message, AssistantMessage))
    return calls, sum(isinstance(message, ToolMessage) for message in result.messages)


async def test_two_waiting_runs_of_one_conversation_each_resume_with_their_own_task(tmp_path: Path) -> None:
    """The resuming process does not continue the task of another run, whose earlier calls it would not know."""
    asked = [Run(tmp_path, says(call("pay", {"to": who}, id=who))) for who in ("ann", "bob")]
    runs: list[str] = []
    for task, one in zip(("Pay Ann.", "Pay Bob."), asked, strict=True):  # each run has its own process, which knows only that run
        async with one.engine() as engine:
            runs.append((await Agent(one.model, engine).run(task, conversation="talk")).run)
    last = Run(tmp_path, says("Done."), says("Done."))
    async with last.engine() as engine:
        agent = Agent(last.model, engine)
        for run in runs:
            await engine.answer(f"{run}/0/0", allow=True)
            assert (await agent.resume(run)).status == "completed"
    assert last.shop.done == ["pay ann", "pay bob"]
    assert ["Pay Bob." in str(seen) for seen in last.model.seen] == [False, True]


# Resuming one waiting result twice


async def test_a_waiting_result_resumed_twice_runs_its_call_once_and_is_then_refused(tmp_path: Path) -> None:
    """Each call has exactly one result in the conversation; a run that has ended cannot be resumed."""
    model, shop = Script(says(call("pay", {"to": "ann"})), says("Done."), says("More.")), Shop()
    async with Engine(shop.tools(), policies=[Asks("pay")]) as engine:
        agent = Agent(model, engine)
        waiting = await agent.run("Go.", conversation="c")
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        assert (await agent.resume(waiting)).text == "Done."
        with pytest.raises(UsageError, match="is over: it ended 'completed'"):
            await agent.resume(waiting)
        after = await agent.run("And now?", conversation="c")
    assert (pairs(after), shop.done) == ((1, 1), ["pay ann"])


async def test_a_partly_resumed_waiting_result_continues_from_the_current_state_of_the_run(tmp_path: Path) -> None:
    both = says(call("pay", {"to": "ann"}, id="1"), call("pay", {"to": "bob"}, id="2", position=1))
    model, shop = Script(both, says("Done.")), Shop()
    async with Engine(shop.tools(), policies=[Asks("pay")]) as engine:
        agent = Agent(model, engine)
        waiting = await agent.run("Go.", conversation="c")
        assert waiting.pending is not None
        ann, bob = (approval.approval_id for approval in waiting.pending.approvals)
        assert (await agent.resume(waiting)).status == "waiting"
        await engine.answer(ann, allow=True)
        for _ in range(2):
            partly = await agent.resume(waiting)
            assert (pairs(partly), [one.id for one in partly.results]) == ((2, 2), ["1"])
        await engine.answer(bob, allow=True)
        result = await agent.resume(waiting)
    assert (result.text, pairs(result), shop.done) == ("Done.", (2, 2), ["pay ann", "pay bob"])
    assert [one.id for one in result.results] == ["1", "2"]


@pytest.mark.parametrize("by_name", [False, True], ids=["result", "name"])
async def test_a_kill_ends_a_queued_resume_and_keeps_its_approval(by_name: bool) -> None:
    """Nothing that is queued in a conversation starts after a kill; the allowed call can still run later."""
    gate = Gate()
    model, shop = Script(says(call("pay", {"to": "ann"})), [gate], says("Done.")), Shop()
    async with Engine(shop.tools(), policies=[Asks("pay")]) as engine:
        agent = Agent(model, engine)
        waiting = await agent.run("Go.", conversation="c")
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        other = asyncio.ensure_future(agent.run("And?", conversation="c"))
        await gate.reached.wait()
        resumed = asyncio.ensure_future(agent.resume(waiting.run if by_name else waiting))
        while not agent.conversations.waiting("c"):
            await asyncio.sleep(0)
        agent.kill("c")
        assert [(await one).turn_status for one in (other, resumed)] == ["stopped_by_user"] * 2
        assert shop.done == []
        assert (await agent.resume(waiting)).text == "Done."
        assert shop.done == ["pay ann"]


async def test_a_run_after_a_cancelled_run_records_the_history_that_one_left(tmp_path: Path) -> None:
    """A host may cancel a run at any moment; the record of the conversation's next run includes its messages."""
    gate = Gate()
    model = Script(says("Hi."), says(call("look", {"what": "a"}, id="1")), [gate], says("Done."))
    async with Engine(Shop().tools()) as engine:
        agent = Agent(model, engine)
        await agent.run("Hi.", conversation="c")
        cut = asyncio.ensure_future(agent.run("Look.", conversation="c"))
        await gate.reached.wait()
        cut.cancel()
        await asyncio.gather(cut, return_exceptions=True)
        result = await agent.run("And?", conversation="c")
        assert pairs(result) == (1, 1)
        assert load_run(engine.journal, engine.blobs, result.run).history.messages == list(result.messages)


async def test_a_repetition_hint_on_an_empty_result_is_recorded_as_shown(tmp_path: Path) -> None:
    @tool(effect="none")
    async def quiet() -> str:
        """Say nothing."""
        return ""

    model = Script(says(call("quiet", id="1")), says(call("quiet", id="2")), says("Done."))
    async with Engine([quiet]) as engine:
        result = await Agent(model, engine, stuck=StuckLimits(hint=2)).run("Go.")
        assert "2nd time" in tool_texts(result.messages)[1]
        assert load_run(engine.journal, engine.blobs, result.run).history.messages == list(result.messages)


# The end of a message whose calls waited


STRICT = Settings(rules=LoopRules(failures="strict"))


@here_and_elsewhere
async def test_a_strict_failure_beside_a_waiting_call_ends_the_run_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    """The rule is applied when the message is complete, after the waiting call has run."""
    both = says(call("fail", id="1"), call("pay", {"to": "ann"}, id="2", position=1))
    run = Run(tmp_path, both, settings=STRICT)
    result = await run.waits_and_goes_on(elsewhere)
    assert (result.turn_status, run.shop.done) == ("tool_execution_error", ["pay ann"])
    assert len(run.model.requests) == 1


@here_and_elsewhere
async def test_a_terminal_success_beside_a_waiting_call_ends_the_run_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    """Requirement C40: a successful terminal call ends the loop, also if another call of its message waited."""
    both = says("I say:", call("tell", {"text": "hello"}, id="1"), call("pay", {"to": "ann"}, id="2", position=1))
    run = Run(tmp_path, both)
    result = await run.waits_and_goes_on(elsewhere, allow=False)
    assert (result.status, len(run.model.requests)) == ("completed", 1)
    assert run.shop.done == ["tell hello"]
    assert [one.status for one in result.results] == ["ok", "error"]


@here_and_elsewhere
async def test_the_end_after_text_rule_applies_after_one_of_the_calls_waited(elsewhere: bool, tmp_path: Path) -> None:
    """Requirement A7: the rule for text before calls considers the whole message."""
    both = says("The answer.", call("look", {"what": "a"}, id="1"), call("pay", {"to": "ann"}, id="2", position=1))
    run = Run(tmp_path, both, settings=Settings(rules=LoopRules(end_after_text=frozenset({"look", "pay"}))))
    result = await run.waits_and_goes_on(elsewhere)
    assert (result.status, result.text, len(run.model.requests)) == ("completed", "The answer.", 1)


@here_and_elsewhere
async def test_an_exit_call_with_a_repaired_name_is_the_same_signal_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    both = says(call("Report_Back", {"how": "well"}, id="x"), call("pay", {"to": "ann"}, id="2", position=1))
    run = Run(tmp_path, both, says("Done."), exit_tools=[ToolSpec(name="report-back")])
    result = await run.waits_and_goes_on(elsewhere)
    assert [(one.name, one.said, one.arguments) for one in result.signals] == [("report-back", "Report_Back", {"how": "well"})]


# Counts that continue after resume


LOOK = [says(call("look", text, id=f"{number}")) for number, text in enumerate(['{"what":"a","depth":1}', '{"depth": 1, "what": "a"}'])]
PAY = says(call("pay", {"to": "ann"}, id="p"))


@here_and_elsewhere
async def test_the_repetition_count_of_failing_calls_continues_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    """The count is in the journal: the third identical call is refused and the fourth ends the turn, across the resume."""
    fails = [says(call("fail", id=f"f{number}")) for number in range(4)]
    run = Run(tmp_path, *fails[:2], PAY, *fails[2:], stuck=StuckLimits(hint=2, refuse=3, stop=4))
    result = await run.waits_and_goes_on(elsewhere)
    codes = [one.code for one in result.results]
    assert (result.turn_status, codes) == ("error", ["tool_raised", "tool_raised", None, "stuck_loop", "stuck_loop"])


@here_and_elsewhere
async def test_repeated_data_results_are_refused_but_never_end_the_run_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    """Requirement E13: repetitions are refused from the third call on, before and after the wait, and never end the run."""
    run = Run(tmp_path, *LOOK, PAY, *LOOK, says("Nothing."), stuck=StuckLimits(hint=2, refuse=3, stop=4))
    result = await run.waits_and_goes_on(elsewhere)
    assert run.shop.done == ["look a", "look a", "pay ann"]
    assert (result.text, [one.code for one in result.results[-2:]]) == ("Nothing.", ["stuck_loop"] * 2)


@here_and_elsewhere
async def test_refused_repetitions_are_not_errors_in_a_row_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    rules = Settings(rules=LoopRules(errors_in_a_row=2))
    run = Run(tmp_path, *LOOK, PAY, *LOOK, says("Nothing."), stuck=StuckLimits(refuse=2), settings=rules)
    result = await run.waits_and_goes_on(elsewhere, allow=False)
    assert (result.text, run.shop.done) == ("Nothing.", ["look a"])


@here_and_elsewhere
async def test_the_count_of_errors_in_a_row_continues_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    """Requirement A6: two failures before the wait, a denial and one more failure after it."""
    fails = says(call("fail"))
    run = Run(tmp_path, fails, fails, PAY, fails, fails, settings=Settings(rules=LoopRules(errors_in_a_row=4)))
    result = await run.waits_and_goes_on(elsewhere, allow=False)
    assert (result.turn_status, result.reason[:24], len(run.model.requests)) == ("error", "4 calls in a row failed;", 4)


@here_and_elsewhere
async def test_the_count_of_dangerous_calls_per_tick_continues_after_resume(elsewhere: bool, tmp_path: Path) -> None:
    """Requirement C41: one dangerous call per tick, also in another process."""
    blast = [says(call("blast", {"what": what})) for what in "ab"]
    run = Run(tmp_path, blast[0], PAY, blast[1], says("Done."), limits=Limits(dangerous_per_tick=1))
    result = await run.waits_and_goes_on(elsewhere)
    assert run.shop.done == ["blast a", "pay ann"]
    assert [one.failure_class for one in result.results] == [None, None, "dangerous_limit"]


@pytest.mark.parametrize("keep", [False, True], ids=["for the turn", "kept in the history"])
@here_and_elsewhere
async def test_context_items_are_in_the_requests_after_resume(elsewhere: bool, keep: bool, tmp_path: Path) -> None:
    """Requirements A44, A48: the items stay in the requests, and each kind restarts once per turn, also in another process."""

    @tool(effect="none")
    async def picture(of: str) -> dict[str, object]:
        """Look at a picture."""
        return {"type": "context_restart_picture", "enhanced_context_item": f"A picture of {of}."}

    def engine() -> Engine:
        path = tmp_path / "journal.db"
        return Engine([picture, *shop.tools()], policies=[Asks("pay")], restart=ContextRestarts(keep=keep), journal=SqliteJournal(path))

    shop = Shop()
    model = Script(says(call("picture", {"of": "cats"})), PAY, says(call("picture", {"of": "dogs"})), says("Done."))
    first = engine()
    waiting = await Agent(model, first).run("Go.", conversation="c")
    assert waiting.pending is not None
    if elsewhere:
        await first.close()
        first = engine()
    await first.answer(waiting.pending.approvals[0].approval_id, allow=True)
    result = await Agent(model, first).resume(waiting.run if elsewhere else waiting)
    await first.close()
    assert (result.status, shop.done) == ("completed", ["pay ann"])
    for seen in model.seen[1:]:
        assert str(seen).count("A picture of cats.") == 1
    assert "A picture of dogs." in "".join(tool_texts(model.seen[3]))
    assert [one.name for one in result.results] == ["pay", "picture"]


async def test_a_run_resumed_by_another_agent_records_the_call_ids_that_were_sent() -> None:
    """In the other agent's conversation the id of the waiting call is not in use yet."""
    model = Script(says(call("pay", {"to": "ann"}, id="1")), says("Hi."))
    async with Engine(Shop().tools(), policies=[Asks("pay")]) as engine:
        waiting = await Agent(model, engine).run("Pay.", conversation="c")
        other = Agent(model, engine)
        await other.run("Hi.", conversation="c")
        again = await other.resume(waiting)
        assert again.status == "waiting"
        assert load_run(engine.journal, engine.blobs, again.run).history.messages == list(again.messages)


async def test_text_before_a_waiting_call_is_returned_once_after_repeated_resumes() -> None:
    model = Script(says("I look.", call("look", {"what": "a"}, id="1")), says("I pay.", call("pay", {"to": "ann"}, id="2")))
    async with Engine(Shop().tools(), policies=[Asks("pay")]) as engine:
        first = await Agent(model, engine).run("Pay.")
        second = await Agent(model, engine).resume(first.run)
        third = await Agent(model, engine).resume(first.run)
    assert [(one.status, one.text) for one in (first, second, third)] == [("waiting", "I look.\n\nI pay.")] * 3
