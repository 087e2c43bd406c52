"""Deliberate mode through an agent: a turn offers what its message asks for, and says so to the thought log alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine, Scope, Tool, tool
from callgate.agent import Agent, AgentEvent, Deliberate, Notice
from callgate.agent.deliberate import AGAIN, plan
from callgate.agent.retention import Retention
from callgate.agent.triggers import MOST_CHARS, MOST_TEXT, MOST_TRIGGERS, Trigger, Wording, compile_triggers, first_match
from callgate.calls import Image, Text
from callgate.errors import UsageError
from callgate.messages import UserMessage
from callgate.models.wire.request import ToolSpec
from callgate.protocols import Ask, Verdict
from callgate.route import ValidatedCall
from tests.agent.scripts import Script, call, says, tool_texts
from tests.door import kinds


class Studio:
    """Three tools with triggers of their own, and what they did."""

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
    """A54: the tools declare, the planner gates; A25: what is not on the list is blocked, and the model can adapt (A26 to A28)."""
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


async def test_a_message_that_asks_for_nothing_gets_no_tools_and_everything_is_blocked() -> None:
    """R17: an empty allowlist is not the same as none."""
    studio = Studio()
    model = Script(PICTURE, DONE)
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        result = await agent.run("Good morning.")
    assert names(model) == []
    assert studio.done == []
    assert result.results[0].failure_class == "blocked_deliberate"


async def test_outside_the_mode_everything_is_offered_and_nothing_is_kept_or_told() -> None:
    """A25, A40, A41: all three need the mode."""
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


@pytest.mark.parametrize("turns", [0, 1, 4])
async def test_a_success_keeps_its_tool_offered_for_so_many_further_turns(turns: int) -> None:
    """A39, A57, R32: N additional turns, then it is gone; N is the operator's."""
    model = Script(PICTURE, DONE, *[DONE] * (turns + 1))
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=turns)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        offered = []
        for _ in range(turns + 1):
            await agent.run("Hm.", conversation="c")
            offered.append(names(model))
    assert offered == [["picture"]] * turns + [[]]


async def test_turns_are_counted_anew_by_each_success_and_for_each_conversation() -> None:
    """A39: per channel."""
    model = Script(PICTURE, DONE, PICTURE, DONE, DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=1)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c")  # uses it: kept for one more
        await agent.run("Hm.", conversation="other")
        assert names(model) == []
        await agent.run("Hm.", conversation="c")
        assert names(model) == ["picture"]


async def test_a_failure_keeps_nothing_offered() -> None:
    """A39: on success."""
    studio = Studio()
    studio.broken = True
    model = Script(PICTURE, DONE, DONE)
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c")
    assert names(model) == []


async def test_a_turn_outside_the_mode_uses_up_nothing() -> None:
    """A40: it neither counts down nor extends."""
    model = Script(PICTURE, DONE, says(call("search")), DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=1)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c", deliberate=False)
        await agent.run("Hm.", conversation="c")
    assert names(model) == ["picture"]


async def test_a_reflection_leaves_no_trace_in_what_stays_offered() -> None:
    model = Script(PICTURE, DONE, PICTURE, DONE, DONE, DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate(turns=1)) as agent:
        await agent.run("Draw a cat.", conversation="c")
        await agent.run("Hm.", conversation="c", reflect=True)
        await agent.run("Hm.", conversation="c")
        assert names(model) == ["picture"]
        await agent.run("Hm.", conversation="c")
    assert names(model) == []


@pytest.mark.parametrize(("turns", "kept"), [(-3, 0), (0, 0), (4, 4), (10, 10), (99, 10)])
def test_the_number_of_turns_is_clamped(turns: int, kept: int) -> None:
    """R32: 0 to 10, 4 where nothing is said."""
    assert Retention(turns).turns == kept
    assert Retention().turns == Deliberate().turns == 4


async def test_a_matched_trigger_is_told_to_the_thought_log_by_its_phrase_and_to_nobody_else() -> None:
    """A41, A42, A43: hidden, and not in the text, the history or the results."""
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


async def test_a_phrase_cannot_break_out_of_its_quotes() -> None:
    told: list[Notice] = []
    mode = Deliberate(triggers={"secret": ("psst `now`",)}, thought_log=lambda _, notice: told.append(notice))
    async with Agent(Script(says(call("secret")), DONE), tools=Studio().tools(), deliberate=mode) as agent:
        await agent.run("psst `now`!", conversation="c")
    assert "`psst 'now'`" in told[0].text


async def test_a_host_that_shows_no_notices_gets_none() -> None:
    """A20, R34: `surface_errors=False` silences the hidden ones, too; the tool is offered all the same."""
    told: list[object] = []
    mode = Deliberate(thought_log=lambda *one: told.append(one))
    studio = Studio()
    async with Agent(Script(PICTURE, DONE), tools=studio.tools(), deliberate=mode) as agent:
        await agent.run("Draw a cat.", scope=Scope(surface_errors=False))
    assert studio.done == ["picture of a cat"]
    assert told == []


async def test_a_thought_log_that_fails_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(conversation: str, notice: Notice) -> None:
        raise OSError("the channel is gone")

    async with Agent(Script(PICTURE, DONE), tools=Studio().tools(), deliberate=Deliberate(thought_log=broken)) as agent:
        assert (await agent.run("Draw a cat.")).completed
    assert "the channel is gone" in caplog.text


async def test_do_it_again_offers_what_was_used_shortly_before() -> None:
    """A39's purpose also where nothing is retained; only those tools, and it is told by the words."""
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


async def test_do_it_again_offers_nothing_where_nothing_was_used() -> None:
    model = Script(DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate()) as agent:
        await agent.run("Do that again, please.", conversation="c")
    assert names(model) == []


async def test_a_run_can_force_tools_and_an_alias_will_do() -> None:
    model = Script(says(call("find", {"what": "x"})), DONE)
    studio = Studio()
    async with Agent(model, tools=studio.tools(), deliberate=Deliberate()) as agent:
        await agent.run("Hm.", expose=("find",))
    assert names(model) == ["search"]
    assert studio.done == ["search x"]


async def test_a_name_that_no_tool_has_is_the_hosts_mistake() -> None:
    async with Agent(Script(), tools=Studio().tools(), deliberate=Deliberate()) as agent:
        with pytest.raises(UsageError, match="serch"):
            await agent.run("Hm.", expose=("serch",))
    for mode in (Deliberate(always=frozenset({"serch"})), Deliberate(triggers={"serch": ("x",)})):
        with pytest.raises(UsageError, match="serch"):
            Agent(Script(), tools=Studio().tools(), deliberate=mode)


async def test_exit_tools_are_never_hidden() -> None:
    """R16: exit tools skip every gate."""
    model = Script(says("Bye.", call("finish", {"how": "well"})))
    async with Agent(model, tools=Studio().tools(), exit_tools=[ToolSpec(name="finish")], deliberate=Deliberate()) as agent:
        result = await agent.run("Good night.")
    assert names(model) == ["finish"]
    assert [signal.name for signal in result.signals] == ["finish"]


async def test_a_host_that_has_planned_the_turn_itself_is_followed() -> None:
    """R17: its allowlist gates calls and filters the request, with or without the agent's planner."""
    for mode in (None, Deliberate()):
        model = Script(PICTURE, DONE)
        scope = Scope(deliberate=True, allowed_tools=frozenset({"find"}))
        async with Agent(model, tools=Studio().tools(), deliberate=mode) as agent:
            result = await agent.run("Draw a cat.", scope=scope)
        assert names(model) == ["search"]
        assert not result.results[0].success


async def test_what_a_tool_returned_exposes_nothing() -> None:
    """Only the user's own words expose a tool."""

    @tool(effect="none", triggers=("^",))
    async def page() -> str:
        """Read a page."""
        return "Please draw a cat."

    model = Script(says(call("page")), DONE, DONE)
    async with Agent(model, tools=[*Studio().tools(), page], deliberate=Deliberate(turns=0)) as agent:
        await agent.run("Read it.", conversation="c")
        await agent.run("Hm.", conversation="c")
        assert [names(model, index) for index in range(3)] == [["page"]] * 3


async def test_a_run_that_waited_for_a_human_goes_on_with_what_it_offered() -> None:
    class Asking:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question="May it?")

    studio = Studio()
    told: list[object] = []
    model = Script(PICTURE, says(call("secret")), DONE)
    engine = Engine(studio.tools(), policies=[Asking()])
    async with engine, Agent(model, engine, deliberate=Deliberate(thought_log=lambda *one: told.append(one))) as agent:
        waiting = await agent.run("Draw a cat.", conversation="c")
        assert waiting.pending is not None
        assert told == []
        engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
        assert "call.suspended" in kinds(engine)
    assert studio.done == ["picture of a cat"]
    assert names(model) == ["picture"]
    assert [one.failure_class for one in result.results] == [None, "blocked_deliberate"]
    assert len(told) == 1


async def test_a_tool_that_comes_later_brings_its_triggers() -> None:
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


# The triggers themselves


def matched(trigger: str, text: str) -> bool:
    return first_match(compile_triggers((trigger,), "tool 'x'"), Wording.of(text)) is not None


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        ("draw", "Draw!"),
        ("draw", "DRAW a cat"),
        ("draw", "\uff44\uff52\uff41\uff57"),
        ("draw it", "please draw\n\t it."),
        (" draw  it ", "draw it"),
        ("straße", "STRASSE"),
        ("café", "cafe\u0301"),
        ("c++", "Write it in C++, please"),
        ("/roll", "/roll 3d6"),
        ("🎨", "Now 🎨 please"),
        ("paint*", "I painted it"),
        ("paint it*", "paint items"),
        ("描いて", "猫を描いてください"),
        ("วาด", "ช่วยวาดรูป"),
        ("pdf", "このpdfを読んで"),
        ("/dr[ao]w/", "DROW"),
        ("/draw/i", "Draw"),
        (r"/\bcat\b/", "a cat."),
        ("^", ""),
        ("^", "anything"),
    ],
)
def test_a_trigger_matches(trigger: str, text: str) -> None:
    assert matched(trigger, text)


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        ("draw", "withdraw"),
        ("draw", "drawer"),
        ("draw", "re-draw"),
        ("draw", "draw_it"),
        ("draw it", "drawit"),
        ("draw", ""),
        ("paint*", "repainted"),
        ("कर", "करना"),
        ("/dr[ao]w/", "drew"),
        ("*star", "a star"),
    ],
)
def test_a_trigger_does_not_match(trigger: str, text: str) -> None:
    assert not matched(trigger, text)


@pytest.mark.parametrize(
    "triggers",
    [
        "draw",
        ("",),
        ("  ",),
        ("*",),
        ("//",),
        ("/(/",),
        ("/a(?=b)/",),
        (r"/(a)\1/",),
        ("/x*/",),
        ("/(a{100}){100}/",),
        ("x" * (MOST_CHARS + 1),),
        ("x",) * (MOST_TRIGGERS + 1),
        (1,),
    ],
    ids=lambda triggers: str(triggers)[:20],
)
def test_a_trigger_that_cannot_work_is_refused_with_the_tools_name(triggers: Any) -> None:
    @tool(effect="none", triggers=triggers)
    async def picture() -> str:
        """Make a picture."""
        return "made"

    with pytest.raises(UsageError, match="picture"):
        Agent(Script(), tools=[picture], deliberate=Deliberate())


def test_the_reference_has_the_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    assert f"At most {MOST_TRIGGERS} of one tool, of {MOST_CHARS} characters each" in page
    assert f"the first and the last {MOST_TEXT // 2:,} characters" in page


def test_a_long_message_is_looked_at_from_both_ends() -> None:
    """A bound on the work, at a place where a request rarely stands."""
    filler = "x " * MOST_TEXT
    assert matched("draw", f"draw {filler}")
    assert matched("draw", f"{filler} draw")
    assert not matched("draw", f"{filler} draw {filler}")


@given(st.text(max_size=40), st.text(max_size=300))
def test_any_text_is_a_trigger_or_refused_and_matching_never_fails(trigger: str, text: str) -> None:
    try:
        compiled = compile_triggers((trigger,), "tool 'x'")
    except UsageError:
        return
    assert first_match(compiled, Wording.of(text)) in (None, *compiled)


words = st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), min_size=1, max_size=3)
gaps = st.sampled_from([" ", "  ", "\n", "\t ", "\u3000"])


@given(words, gaps, st.sampled_from(["", "so, ", "(", "\u00a1"]), st.sampled_from(["", "!", ", ok", ")"]), st.booleans())
def test_a_phrase_is_found_wherever_it_stands_as_words(phrase: list[str], gap: str, before: str, after: str, upper: bool) -> None:
    said = gap.join(phrase)
    assert matched(" ".join(phrase), f"{before}{said.upper() if upper else said}{after}")


@given(words, st.from_regex(r"[a-z0-9_-]{1,3}", fullmatch=True))
def test_a_phrase_is_not_found_inside_longer_words(phrase: list[str], more: str) -> None:
    text = " ".join(phrase)
    long = Wording.of(f"{more}{text}")
    assert not matched(text, f"{more}{text}") or f" {text}" in f" {long.folded}".replace(f"{more}{text}", "", 1)
    assert matched(f"{text}*", f"{text}{more}")


# The plan and the retention


def phrases(**triggers: str) -> dict[str, tuple[Trigger, ...]]:
    return {name: compile_triggers((trigger,), name) for name, trigger in triggers.items()}


@given(
    st.text(max_size=60),
    st.sets(st.sampled_from("abcd")),
    st.sets(st.sampled_from("abcd")),
    st.sets(st.sampled_from("abcde")),
)
def test_a_plan_offers_known_tools_only_and_everything_that_is_forced_or_retained(
    text: str, forced: set[str], retained: set[str], recent: set[str]
) -> None:
    known = phrases(a="draw", b="paint*", c="/x/")
    exposed = plan(text, known, forced=forced, retained=retained, recent=recent, again=compile_triggers(AGAIN, "again"))
    assert exposed.allowed <= known.keys()
    assert exposed.allowed >= (forced | retained) & known.keys()
    assert exposed.matches.keys() <= exposed.allowed
    assert all(match.tool == name for name, match in exposed.matches.items())


def test_a_plan_says_whose_trigger_it_was() -> None:
    known = phrases(own="draw", more="never said", last="never said", every="^", forced="never said")
    exposed = plan(
        "draw the same but green",
        known,
        more=phrases(more="green"),
        recent=["last", "gone"],
        forced=["forced"],
        again=compile_triggers(AGAIN, "again"),
    )
    assert {name: match.source for name, match in exposed.matches.items()} == {
        "own": "tool",
        "more": "operator",
        "last": "follow_up",
        "every": "always",
    }
    assert exposed.allowed == {"own", "more", "last", "every", "forced"}


steps = st.lists(st.one_of(st.just("turn"), st.sampled_from(["a", "b"])), max_size=40)


@given(st.integers(-2, 12), steps)
def test_a_tool_is_offered_for_exactly_so_many_turns_after_its_last_success(turns: int, steps: list[str]) -> None:
    """R32, against the plainest model there is: the number of turns since the last success."""
    kept = Retention(turns)
    since: dict[str, int] = {}
    for step in steps:
        if step == "turn":
            since = {name: count + 1 for name, count in since.items()}
            assert kept.begin_turn("c") == {name for name, count in since.items() if count <= kept.turns}
        else:
            kept.extend("c", step)
            since[step] = 0


def test_what_is_kept_is_bounded() -> None:
    """The conversation that was used longest ago goes first, and so does the tool."""
    kept = Retention(conversations=2)
    for conversation in ("a", "b", "c"):
        kept.extend(conversation, "x")
    assert [kept.names(conversation) for conversation in ("a", "b", "c")] == [frozenset(), {"x"}, {"x"}]
    for number in range(1_000):
        kept.extend("c", str(number))
    assert len(kept.names("c")) == 256
    assert "999" in kept.names("c")
    kept.forget("c")
    assert kept.names("c") == frozenset()


async def test_a_message_of_parts_is_read_by_its_text() -> None:
    model = Script(DONE)
    async with Agent(model, tools=Studio().tools(), deliberate=Deliberate()) as agent:
        await agent.run(UserMessage((Image(data="", mime_type="image/png"), Text(text="draw this"))))
    assert names(model) == ["picture"]
