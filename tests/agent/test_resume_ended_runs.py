"""A run that ended before its task was done can be resumed: the model is asked again after the last message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Agent, Engine, Scope, SqliteJournal, Tool, ToolContext, UsageError, tool
from callgate.agent import Settings
from callgate.agent.loop_settings import Budget
from callgate.messages import ToolMessage, UserMessage
from callgate.models.wire.request import ModelRequest
from callgate.replay import Replay
from callgate.testing import Call, Fail, Item, Pause, ScriptedModel

SCOPE = Scope(run="case-7")


@tool(effect="none")
def look(what: str) -> str:
    """Look."""
    return f"seen {what}"


BOOM = Fail("server_error", "boom")


@pytest.mark.parametrize(
    ("first", "roles"),
    [
        ([[Call("look", {"what": "a"})], [BOOM]], ["user", "assistant", "tool"]),
        ([["Half an ans", BOOM]], ["user"]),
        ([["Half an ans", Call("look", {"what": "a"}), BOOM]], ["user"]),
    ],
    ids=["after a round", "in a text", "in a message with a call"],
)
async def test_a_failed_run_can_be_resumed_where_it_ended(tmp_path: Path, first: list[list[Item]], roles: list[str]) -> None:
    path = tmp_path / "journal.db"
    async with Engine([look], journal=SqliteJournal(path)) as engine, Agent(ScriptedModel(first), engine) as agent:
        assert (await agent.run("Look.", scope=SCOPE)).status == "failed"
    sent: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        sent.append([type(message).__name__.removesuffix("Message").lower() for message in request.messages])
        return "Done."

    async with Engine([look], journal=SqliteJournal(path)) as engine, Agent(ScriptedModel([answer]), engine) as agent:
        result = await agent.resume("case-7")
        assert (result.status, result.text) == ("completed", "Done.")
        assert sent == [roles]
        assert not Replay.of(engine.journal, "case-7", engine.blobs).differences
        with pytest.raises(UsageError, match="is over: it ended 'completed'"):
            await agent.resume("case-7")


async def test_a_stopped_run_can_be_resumed(tmp_path: Path) -> None:
    path, never = tmp_path / "journal.db", asyncio.Event()
    async with Engine([look], journal=SqliteJournal(path)) as engine:
        model = ScriptedModel([["I look. ", Pause(never)], ["Done."]])
        agent = Agent(model, engine)
        running = asyncio.ensure_future(agent.run("Look.", scope=SCOPE, conversation="talk"))
        while not model.requests:
            await asyncio.sleep(0)
        assert agent.stop("talk")
        assert (await running).turn_status == "stopped_by_user"
        assert (await agent.resume("case-7")).completed


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_run_that_was_stopped_while_a_call_finished_is_resumed_with_the_conversation_that_it_had(
    tmp_path: Path, restarts: bool
) -> None:
    """The model reads that it was paid, and does not pay again."""
    path, paid = tmp_path / "journal.db", []

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        paid.append("ann")
        engine.control.stop(ctx.conversation)
        return "paid"

    engine = Engine([pay], journal=SqliteJournal(path))
    result = await Agent(ScriptedModel([[Call("pay")]]), engine).run("Pay.", scope=SCOPE, conversation="talk")
    assert result.turn_status == "stopped_by_user"
    assert [type(one).__name__ for one in result.messages] == ["UserMessage", "AssistantMessage", "ToolMessage"]
    if restarts:
        await engine.close()
        engine = Engine([pay], journal=SqliteJournal(path))
    shown: list[int] = []

    def answer(request: ModelRequest) -> str:
        shown.append(len(request.messages))
        return "Done."

    resumed = await Agent(ScriptedModel([answer]), engine).resume("case-7")
    assert (resumed.completed, shown, paid) == (True, [3], ["ann"])
    assert not Replay.of(engine.journal, "case-7", engine.blobs).differences
    await engine.close()


async def test_a_run_that_exhausted_its_budget_can_be_resumed_with_a_larger_one(tmp_path: Path) -> None:
    path, calls = tmp_path / "journal.db", [[Call("look", {"what": str(number)})] for number in range(3)]
    for iterations, status in ((1, "stopped"), (1, "stopped"), (5, "completed")):
        settings = Settings(budget=Budget(iterations=iterations))
        async with Engine([look], journal=SqliteJournal(path)) as engine:
            agent = Agent(ScriptedModel([*calls[1:2], ["Done."]] if iterations > 1 else calls), engine, settings=settings)
            begun = bool(list(engine.journal.read(run="case-7")))
            result = await (agent.resume("case-7") if begun else agent.run("Look.", scope=SCOPE))
            assert result.status == status
    assert result.spent.iterations == 2


def _last_text(request: ModelRequest) -> str:
    """Return the text of the request's last message, which must be one of the user."""
    last = request.messages[-1]
    assert isinstance(last, UserMessage), last
    return str(last.content)


async def test_a_run_that_was_stopped_in_an_answer_is_resumed_with_a_message_of_the_user(tmp_path: Path) -> None:
    """Providers refuse a conversation that ends with an answer. A second resume does not say it again."""
    never, asked = asyncio.Event(), []

    def answer(request: ModelRequest) -> list[Item]:
        asked.append((len(request.messages), _last_text(request)))
        return [BOOM] if len(asked) == 1 else ["Done."]

    async with Engine([look], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        agent = Agent(ScriptedModel([["I look. ", Pause(never)], answer, answer]), engine)
        running = asyncio.ensure_future(agent.run("Look.", scope=SCOPE, conversation="talk"))
        while not agent.model.requests:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        agent.stop("talk")
        await running
        assert (await agent.resume("case-7")).status == "failed"
        assert (await agent.resume("case-7")).completed
        assert asked == [(3, "Your last message was interrupted. Continue the task.")] * 2
        assert not Replay.of(engine.journal, "case-7", engine.blobs).differences


def paying_without_end(paid: asyncio.Event) -> Tool:
    """Return a tool that pays, sets the event and never returns."""

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        paid.set()
        await asyncio.Event().wait()
        return "paid"

    return pay


async def test_a_model_is_told_of_a_killed_call_when_its_run_is_resumed(tmp_path: Path) -> None:
    """It may have paid: without a word, the model would pay again in other words."""
    path, paid, told = tmp_path / "journal.db", asyncio.Event(), []
    pay = paying_without_end(paid)

    def answer(request: ModelRequest) -> list[Item]:
        told.append(_last_text(request))
        return [BOOM] if len(told) == 1 else ["Done."]

    async with Engine([look, pay], journal=SqliteJournal(path)) as engine:
        agent = Agent(ScriptedModel([["I pay.", Call("look", {"what": "a"}), Call("pay", {"to": "ann"})]]), engine)
        running = asyncio.ensure_future(agent.run("Pay.", scope=SCOPE, conversation="talk"))
        await paid.wait()
        agent.kill("talk")
        assert (await running).turn_status == "stopped_by_user"
    for status in ("failed", "completed"):
        async with Engine([look, pay], journal=SqliteJournal(path)) as engine, Agent(ScriptedModel([answer]), engine) as agent:
            assert (await agent.resume("case-7")).status == status
            assert not Replay.of(engine.journal, "case-7", engine.blobs).differences
    assert told[0] == told[1]
    assert told[0].endswith('check the real state before you repeat one.\npay {"to":"ann"}')


@pytest.mark.parametrize("restarts", [False, True], ids=["same engine", "another engine"])
async def test_a_model_is_told_of_a_killed_call_in_the_next_run_of_its_conversation(tmp_path: Path, restarts: bool) -> None:
    """Once: a third run does not say it again."""
    path, paid, told = tmp_path / "journal.db", asyncio.Event(), []
    pay = paying_without_end(paid)

    def answer(request: ModelRequest) -> str:
        told.append([str(message.content) for message in request.messages if isinstance(message, UserMessage)])
        return "Done."

    engine = Engine([pay], journal=SqliteJournal(path))
    agent = Agent(ScriptedModel([[Call("pay", {"to": "ann"})], answer, answer]), engine)
    running = asyncio.ensure_future(agent.run("Pay.", conversation="talk"))
    await paid.wait()
    agent.kill("talk")
    killed = await running
    assert [type(one).__name__ for one in killed.messages] == ["UserMessage"]
    if restarts:
        await engine.close()
        engine = Engine([pay], journal=SqliteJournal(path))
        agent = Agent(ScriptedModel([answer, answer]), engine)
        assert (await agent.resume(killed.run)).completed
    else:
        assert (await agent.run("Go on.", conversation="talk")).completed
    last = await agent.run("Thanks.", conversation="talk")
    note = 'check the real state before you repeat one.\npay {"to":"ann"}'
    assert ["".join(said).count(note) for said in told] == [1, 1], told
    assert not Replay.of(engine.journal, last.run, engine.blobs).differences
    await engine.close()


@pytest.mark.parametrize("restarts", [False, True], ids=["next run", "resumed elsewhere"])
async def test_a_model_is_told_of_the_calls_of_a_cancelled_run(tmp_path: Path, restarts: bool) -> None:
    """A web server cancels a run when its client leaves. The conversation goes on, and the model must not pay again."""
    path, paid, told = tmp_path / "journal.db", asyncio.Event(), []

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        if to == "bob":
            paid.set()
            await asyncio.Event().wait()
        return f"paid {to}"

    def answer(request: ModelRequest) -> str:
        told.append([message.text for message in request.messages if isinstance(message, ToolMessage)])
        return "Done."

    calls = [Call("pay", {"to": to}) for to in ("ann", "bob", "cid")]
    engine = Engine([pay], journal=SqliteJournal(path))
    agent = Agent(ScriptedModel([calls, answer]), engine)
    running = asyncio.ensure_future(agent.run("Pay.", conversation="talk", scope=SCOPE))
    await paid.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if restarts:
        await engine.close()
        engine = Engine([pay], journal=SqliteJournal(path))
        last = await Agent(ScriptedModel([answer]), engine).resume("case-7")
    else:
        last = await agent.run("Go on.", conversation="talk")
    assert last.completed
    (first, second, third), *others = told
    assert not others
    assert first == "paid ann"
    assert "It may have taken effect" in second
    assert "It was not started" in third
    assert not Replay.of(engine.journal, last.run, engine.blobs).differences
    await engine.close()
