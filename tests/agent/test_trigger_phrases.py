"""The triggers of deliberate mode: which phrases match, which are refused, and which tools a plan offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import tool
from callgate.agent import Agent, Deliberate
from callgate.agent.deliberate_mode import AGAIN, plan
from callgate.agent.tool_retention import Retention
from callgate.agent.trigger_phrases import MOST_CHARS, MOST_TEXT, MOST_TRIGGERS, Trigger, Wording, compile_triggers, first_match
from callgate.errors import UsageError
from tests.agent.scripted_model import Script


@pytest.mark.parametrize(("turns", "kept"), [(-3, 0), (0, 0), (4, 4), (10, 10), (99, 10)])
def test_the_number_of_retained_turns_is_clamped_to_0_to_10(turns: int, kept: int) -> None:
    """The default is 4."""
    assert Retention(turns).turns == kept
    assert Retention().turns == Deliberate().turns == 4


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
def test_an_invalid_trigger_is_refused_with_the_name_of_its_tool(triggers: Any) -> None:
    @tool(effect="none", triggers=triggers)
    async def picture() -> str:
        """Make a picture."""
        return "made"

    with pytest.raises(UsageError, match="picture"):
        Agent(Script(), tools=[picture], deliberate=Deliberate())


def test_the_reference_documents_the_trigger_limits() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    assert f"A tool has at most {MOST_TRIGGERS} triggers of {MOST_CHARS} characters each" in page
    assert f"the first and the last {MOST_TEXT // 2:,} characters" in page


def test_only_the_start_and_the_end_of_a_long_message_are_matched() -> None:
    """This limits the work; a request is rarely in the middle of a long message."""
    filler = "x " * MOST_TEXT
    assert matched("draw", f"draw {filler}")
    assert matched("draw", f"{filler} draw")
    assert not matched("draw", f"{filler} draw {filler}")


@given(st.text(max_size=40), st.text(max_size=300))
def test_any_trigger_text_is_accepted_or_refused_and_matching_never_raises(trigger: str, text: str) -> None:
    try:
        compiled = compile_triggers((trigger,), "tool 'x'")
    except UsageError:
        return
    assert first_match(compiled, Wording.of(text)) in (None, *compiled)


words = st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), min_size=1, max_size=3)

gaps = st.sampled_from([" ", "  ", "\n", "\t ", "\u3000"])


@given(words, gaps, st.sampled_from(["", "so, ", "(", "\u00a1"]), st.sampled_from(["", "!", ", ok", ")"]), st.booleans())
def test_a_phrase_matches_wherever_it_stands_as_whole_words(phrase: list[str], gap: str, before: str, after: str, upper: bool) -> None:
    said = gap.join(phrase)
    assert matched(" ".join(phrase), f"{before}{said.upper() if upper else said}{after}")


@given(words, st.from_regex(r"[a-z0-9_-]{1,3}", fullmatch=True))
def test_a_phrase_does_not_match_inside_longer_words(phrase: list[str], more: str) -> None:
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
def test_a_plan_offers_only_known_tools_and_all_forced_or_retained_ones(
    text: str, forced: set[str], retained: set[str], recent: set[str]
) -> None:
    known = phrases(a="draw", b="paint*", c="/x/")
    exposed = plan(text, known, forced=forced, retained=retained, recent=recent, again=compile_triggers(AGAIN, "again"))
    assert exposed.allowed <= known.keys()
    assert exposed.allowed >= (forced | retained) & known.keys()
    assert exposed.matches.keys() <= exposed.allowed
    assert all(match.tool == name for name, match in exposed.matches.items())


def test_a_plan_names_the_source_of_each_match() -> None:
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
def test_a_tool_is_offered_for_exactly_the_configured_turns_after_its_last_success(turns: int, steps: list[str]) -> None:
    """Compares with a simple model: the number of turns since the last success."""
    kept = Retention(turns)
    since: dict[str, int] = {}
    for step in steps:
        if step == "turn":
            since = {name: count + 1 for name, count in since.items()}
            assert kept.begin_turn("c") == {name for name, count in since.items() if count <= kept.turns}
        else:
            kept.extend("c", step)
            since[step] = 0


def test_retention_is_bounded_in_conversations_and_tools() -> None:
    """The conversation that was used longest ago is dropped first, and likewise the tool."""
    kept = Retention(conversations=2)
    for conversation in ("a", "b", "c"):
        kept.extend(conversation, "x")
    assert [kept.names(conversation) for conversation in ("a", "b", "c")] == [frozenset(), {"x"}, {"x"}]
    for number in range(1_000):
        kept.extend("c", str(number))
    assert len(kept.names("c")) == 256
    assert "999" in kept.names("c")
