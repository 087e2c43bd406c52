"""Deliberate mode through an agent: a turn offers the tools whose triggers match its message, and only the thought log gets the matches."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from callgate import Engine, Scope, Tool, tool
from callgate.agent import Agent, AgentEvent, Deliberate, Notice, Settings
from callgate.calls import Image, Text
from callgate.errors import UsageError
from callgate.messages import UserMessage
from callgate.models.wire.request import ToolSpec
from tests.agent.scripted_model import Script, call, says, tool_texts
from tests.engine_calls import kinds
from tests.host_fakes import Asks
from tests.plugins.fakes import ANSWER, FakeFolder, table


class Studio:
    """Three tools with triggers of their own, and a list of what they executed."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken = False

    def tools(self) -> list[Tool]:
        studio = self

        @tool(effect="none", triggers=("draw", "paint*", "/sketch (me )?a/"))
        async def picture(of: str = "it") -> str:
            """Make a picture."""
            if studio.broken:
                raise ValueError("no paint left")
            studio.done.append(f"picture of {of}")
            return "made"

        @tool(effect="none", triggers=("look up",), aliases=("find",))
        async def search(what: str = "it") -> str:
            """Look something up."""
            studio.done.append(f"search {what}")
            return "found"

        @tool(effect="none")
        async def secret() -> str:
            """Has no trigger."""
            studio.done.append("secret")
            return "told"

        return [picture, search, secret]


def names(model: Script, index: int = -1) -> list[str]:
    return [spec.name for spec in model.requests[index].tools]


PICTURE = says(call("picture", {"of": "a cat"}))

DONE = says("Done.")


async def test_a_turn_offers_the_tools_whose_triggers_its_message_matches() -> None:
    """Requirements A25 to A28, A54: tools declare triggers, the planner selects tools; other calls are blocked, and the model can adapt."""
    studio = Studio()
    model = Script(PICTURE, says(call("secret")), DONE)
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        result = await agent.run("Please DRAW me a cat.")
    assert [names(model, index) for index in range(3)] == [["picture"]] * 3
    assert studio.done == ["picture of a cat"]
    blocked = result.results[1]
    assert blocked.failure_class == "blocked_deliberate"
    assert isinstance(blocked.structured, dict)
    assert blocked.structured["status"] == "blocked_by_deliberate_tool_mode"
    assert blocked.structured["allowed_tools"] == ["picture"]
    assert tool_texts(model.seen[2])[1] == blocked.text
    assert result.completed


async def test_a_message_that_matches_no_trigger_offers_no_tools_and_blocks_every_call() -> None:
    """An empty allowlist blocks every tool; a missing one blocks none. Only the model is told: there is no notice for the user."""
    studio = Studio()
    model = Script(PICTURE, DONE)
    events: list[AgentEvent] = []
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        result = await agent.run("Good morning.", on_event=events.append)
    assert not [event for event in events if isinstance(event, Notice)]
    assert (result.turn_status, result.reason) == ("completed", "")
    assert names(model) == []
    assert studio.done == []
    assert result.results[0].failure_class == "blocked_deliberate"


async def test_without_deliberate_mode_all_tools_are_offered_and_none_is_retained_or_logged() -> None:
    """Requirements A25, A40, A41: blocking, retention and the thought log all need the mode."""
    studio = Studio()
    told: list[tuple[str, Notice]] = []
    mode = Deliberate(active=False, thought_log=lambda *one: told.append(one))
    model = Script(PICTURE, DONE, DONE)
    async with Agent(model, tools=studio.tools(), deliberate=mode) as agent:
        await agent.run("Draw a cat.", conversation="c")
        assert names(model) == ["picture", "search", "secret"]
        await agent.run("Hm.", conversation="c", deliberate=True)
    assert names(model) == []
    assert studio.done == ["picture of a cat"]
    assert told == []


@pytest.mark.parametrize(
    ("mode", "turns"),
    [(Deliberate(), 4), (Deliberate(turns=0), 0), (Deliberate(turns=1), 1), (Deliberate(turns=50), 10)],
    ids=["default", "none", "one", "too many"],
)
async def test_a_successful_call_keeps_its_tool_offered_for_the_configured_turns(mode: Deliberate, turns: int) -> None:
    """Requirements A39, A57: the tool is offered for N more turns. N is configurable, 4 by default and at most 10."""
    model = Script(PICTURE, DONE, *[DONE] * (turns + 1))
    async with Agent(model, tools=Studio().tools(), deliberate=mode) as agent:
        await agent.run("Draw a cat.", conversation="c")
        offered = []
        for _ in range(turns + 1):
            await agent.run("Hm.", conversation="c")
            offered.append(names(model))
    assert offered == [["picture"]] * turns + [[]]


async def test_each_success_restarts_the_retention_count_of_its_conversation() -> None:
    """Requirement A39: the count is kept per conversation."""
    model = Script(PICTURE, DONE, PICTURE, DONE, DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=1)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c")  # uses the tool, so it is kept for one more turn
        await agent.run("Hm.", conversation="other")
        assert names(model) == []
        await agent.run("Hm.", conversation="c")
        assert names(model) == ["picture"]


async def test_a_failed_call_does_not_keep_its_tool_offered() -> None:
    """Requirement A39: only a success keeps a tool offered."""
    studio = Studio()
    studio.broken = True
    model = Script(PICTURE, DONE, DONE)
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c")
    assert names(model) == []


async def test_a_turn_without_deliberate_mode_does_not_change_retention() -> None:
    """Requirement A40: such a turn neither decrements the count nor restarts it."""
    model = Script(PICTURE, DONE, says(call("search")), DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=1)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c", deliberate=False)
        await agent.run("Hm.", conversation="c")
    assert names(model) == ["picture"]


async def test_a_reflection_does_not_change_which_tools_stay_offered() -> None:
    model = Script(PICTURE, DONE, PICTURE, DONE, DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=1)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c", reflect=True)
        await agent.run("Hm.", conversation="c")
        assert names(model) == ["picture"]
        await agent.run("Hm.", conversation="c")
    assert names(model) == []


async def test_a_matched_trigger_phrase_is_only_in_the_thought_log_and_a_hidden_notice() -> None:
    """Requirements A41, A42, A43: the notice is hidden, and the phrase is not in the text, the history or the results."""
    told: list[tuple[str, Notice]] = []
    events: list[AgentEvent] = []
    model = Script(says(call("picture"), call("search", position=1)), DONE)
    mode = Deliberate(always=frozenset({"search"}), thought_log=lambda *one: told.append(one))
    async with Agent(model, tools=Studio().tools(), deliberate=mode) as agent:
        result = await agent.run("I like it painted.", conversation="c", on_event=events.append)
    assert [where for where, _ in told] == ["c"]
    notice = told[0][1]
    assert (notice.kind, notice.hidden) == ("trigger", True)
    assert "`paint*`" in notice.text
    assert "`picture`" in notice.text
    assert [event for event in events if isinstance(event, Notice)] == [notice]
    assert "paint*" not in json.dumps([result.text, str(result.messages), str(result.results), str(model.seen)])


async def test_backticks_in_a_trigger_phrase_are_replaced_in_the_thought_log() -> None:
    told: list[Notice] = []
    mode = Deliberate(triggers={"secret": ("psst `now`",)}, thought_log=lambda _, notice: told.append(notice))
    async with Agent(Script(says(call("secret")), DONE), tools=Studio().tools(), deliberate=mode) as agent:
        await agent.run("psst `now`!", conversation="c")
    assert "`psst 'now'`" in told[0].text


@pytest.mark.parametrize("surface", [True, False])
async def test_the_thought_log_is_written_regardless_of_surface_errors(surface: bool) -> None:
    """Requirements A41, A42: the notice depends only on the match and on the mode; users never see it."""
    told: list[tuple[str, Notice]] = []
    mode = Deliberate(thought_log=lambda *one: told.append(one))
    studio = Studio()
    async with Agent(Script(PICTURE, DONE), tools=studio.tools(), deliberate=mode) as agent:
        await agent.run("Draw a cat.", conversation="c", scope=Scope(surface_errors=surface))
    assert studio.done == ["picture of a cat"]
    assert [(where, notice.kind, notice.hidden) for where, notice in told] == [("c", "trigger", True)]


class Steps:
    """Records the order of events around a call that adds to the context. If `holds` is set, the restart handler never returns."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.asked = asyncio.Event()
        self.holds = False

    def thought(self, conversation: str, notice: Notice) -> None:
        self.done.append("thought")

    async def restart(self, data: object) -> bool:
        self.done.append("restart")
        self.asked.set()
        if self.holds:
            await asyncio.Event().wait()
        return True

    def tools(self) -> list[Tool]:
        @tool(effect="none", triggers=("draw",))
        async def picture() -> dict[str, object]:
            """Bring a picture into the context."""
            self.done.append("picture")
            return {"type": "context_restart_picture"}

        return [picture]


@pytest.mark.parametrize("early", [True, False])
async def test_the_thought_log_is_written_before_the_restart_handler_is_called(early: bool) -> None:
    """Requirement A8: retention is step 6, the hidden notice step 7, the restart step 8."""
    steps, heard = Steps(), list[AgentEvent]()
    async with Engine(steps.tools(), restart=steps.restart) as engine:
        mode = Deliberate(thought_log=steps.thought)
        async with Agent(Script(PICTURE, DONE), engine, deliberate=mode, settings=Settings(early_start=early)) as agent:
            await agent.run("Draw a cat.", conversation="c", on_event=heard.append)
    assert steps.done == ["picture", "thought", "restart"]
    assert [event.hidden for event in heard if isinstance(event, Notice)] == [True]


async def test_a_used_tool_is_retained_before_the_restart_handler_is_called() -> None:
    """Requirements A8, A39: the handler is cancelled before it returns, and the next turn still offers the tool."""
    steps, model = Steps(), Script(PICTURE, DONE)
    steps.holds = True
    async with Engine(steps.tools(), restart=steps.restart) as engine, Agent(model, engine, deliberate=Deliberate()) as agent:
        run = asyncio.ensure_future(agent.run("Draw a cat.", conversation="c"))
        await steps.asked.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await agent.run("Hm.", conversation="c")
    assert names(model) == ["picture"]


async def test_a_failing_thought_log_is_logged_and_does_not_fail_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def broken(conversation: str, notice: Notice) -> None:
        raise OSError("the channel is gone")

    async with Agent(Script(PICTURE, DONE), tools=Studio().tools(), deliberate=Deliberate(thought_log=broken)) as agent:
        assert (await agent.run("Draw a cat.")).completed
    assert "the channel is gone" in caplog.text


async def test_a_request_to_repeat_offers_the_recently_used_tools() -> None:
    """Requirement A39, without retention: the words of the request select only the tools that were used recently."""
    told: list[Notice] = []
    model = Script(PICTURE, DONE, PICTURE, DONE)
    studio = Studio()
    mode = Deliberate(turns=0, thought_log=lambda _, notice: told.append(notice))
    async with Agent(model, tools=studio.tools(), deliberate=mode) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Do that again, please.", conversation="c")
    assert names(model) == ["picture"]
    assert len(studio.done) == 2
    assert "done before" in told[1].text


async def test_a_request_to_repeat_offers_nothing_if_no_tool_was_used() -> None:
    model = Script(DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate()) as agent:
        await agent.run("Do that again, please.", conversation="c")
    assert names(model) == []


async def test_a_run_can_expose_a_tool_by_its_alias() -> None:
    model = Script(says(call("find", {"what": "x"})), DONE)
    studio = Studio()
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        await agent.run("Hm.", expose=("find",))
    assert names(model) == ["search"]
    assert studio.done == ["search x"]


async def test_an_unknown_tool_name_in_the_options_raises_usage_error() -> None:
    async with Agent(Script(), tools=Studio().tools(), deliberate=Deliberate()) as agent:
        with pytest.raises(UsageError, match="serch"):
            await agent.run("Hm.", expose=("serch",))
    for mode in (Deliberate(always=frozenset({"serch"})), Deliberate(triggers={"serch": ("x",)})):
        with pytest.raises(UsageError, match="serch"):
            Agent(Script(), tools=Studio().tools(), deliberate=mode)


async def test_exit_tools_are_always_offered() -> None:
    """The planner does not filter exit tools."""
    model = Script(says("Bye.", call("finish", {"how": "well"})))
    async with Agent(model, tools=Studio().tools(), exit_tools=[ToolSpec(name="finish")], deliberate=Deliberate()) as agent:
        result = await agent.run("Good night.")
    assert names(model) == ["finish"]
    assert [signal.name for signal in result.signals] == ["finish"]


async def test_the_allowed_tools_of_a_scope_override_the_planner() -> None:
    """The allowlist of the scope restricts calls and the request, with or without the agent's planner."""
    for mode in (None, Deliberate()):
        model = Script(PICTURE, DONE)
        scope = Scope(deliberate=True, allowed_tools=frozenset({"find"}))
        async with Agent(model, tools=Studio().tools(), deliberate=mode) as agent:
            result = await agent.run("Draw a cat.", scope=scope)
        assert names(model) == ["search"]
        assert not result.results[0].success


async def test_trigger_phrases_in_tool_results_expose_no_tools() -> None:
    """Only the user's own words can expose a tool."""

    @tool(effect="none", triggers=("^",))
    async def page() -> str:
        """Read a page."""
        return "Please draw a cat."

    model = Script(says(call("page")), DONE, DONE)
    async with Agent(model, tools=[*Studio().tools(), page], deliberate=Deliberate(turns=0)) as agent:
        await agent.run("Read it.", conversation="c")
        await agent.run("Hm.", conversation="c")
        assert [names(model, index) for index in range(3)] == [["page"]] * 3


async def test_a_resumed_run_offers_the_tools_it_offered_before_the_approval() -> None:
    studio = Studio()
    told: list[object] = []
    model = Script(PICTURE, says(call("secret")), DONE)
    engine = Engine(studio.tools(), policies=[Asks()])
    async with engine, Agent(model, engine, deliberate=Deliberate(thought_log=lambda *one: told.append(one))) as agent:
        waiting = await agent.run("Draw a cat.", conversation="c")
        assert waiting.pending is not None
        assert told == []
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
        assert "call.suspended" in kinds(engine)
    assert studio.done == ["picture of a cat"]
    assert names(model) == ["picture"]
    assert [one.failure_class for one in result.results] == [None, "blocked_deliberate"]
    assert len(told) == 1


@pytest.mark.process
async def test_the_manifest_of_a_plugin_declares_triggers(tmp_path: Path) -> None:
    """Requirement A54: the plugin only declares them; a call that no trigger allows does not reach it."""
    fake = FakeFolder(tmp_path, ANSWER, tools=table("work", triggers=["print*"]) + table("echo"))
    model = Script(says(call("work")), says(call("echo")), DONE, says(call("work")), DONE)
    async with Agent(model, tools=[fake.plugin()], deliberate=Deliberate(turns=0)) as agent:
        first = await agent.run("Please print it.")
        second = await agent.run("Good morning.")
    assert (names(model, 0), names(model, 3)) == (["work"], [])
    assert [one.failure_class for one in (*first.results, *second.results)] == [None, "blocked_deliberate", "blocked_deliberate"]
    assert [sent["tool"] for sent in fake.seen("call")] == ["work"]


async def test_triggers_of_a_tool_registered_later_take_effect() -> None:
    model = Script(DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate()) as agent:

        @tool(effect="none", triggers=("weather",))
        async def forecast() -> str:
            """Tell the weather."""
            return "rain"

        await agent.run("How is the weather?")
        assert names(model) == []
        agent.engine.register(forecast)
        await agent.run("How is the weather?")
    assert names(model) == ["forecast"]


async def test_triggers_match_the_text_parts_of_a_message() -> None:
    model = Script(DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate()) as agent:
        await agent.run(UserMessage((Image(data="", mime_type="image/png"), Text(text="draw this"))))
    assert names(model) == ["picture"]
