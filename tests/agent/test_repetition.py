"""A model that repeats a call gets a hint, then a refusal, and then its run ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from callgate import tool
from callgate.agent import PRESETS, Agent, Settings
from callgate.agent.loop_settings import PresetName
from callgate.agent.repetition import StuckLimits
from callgate.loop_decision import LoopRules
from callgate.policy import Deny
from tests.agent.recording_tools import Board, run
from tests.agent.scripted_model import Answer, Script, call, says, tool_texts


class Never:
    """A policy that denies every call."""

    name = "never"

    async def decide(self, call: object) -> Deny:
        return Deny(reason="not here")


async def test_calls_with_equal_arguments_are_identical_however_the_json_is_written() -> None:
    """Calls are compared by what the tool gets: order of keys, white space, a number as text and explicit defaults do not matter."""
    made: list[tuple[str, int]] = []

    @tool(effect="none")
    async def search(query: str, limit: int = 10) -> str:
        """Search."""
        made.append((query, limit))
        return "nothing"

    written = [
        '{"query":"a","limit":10}',
        '{ "limit": 10,\n "query": "a" }',
        '{"limit":"10","query":"a"}',
        '{"query":"a"}',
        '{"query":"\\u0061"}',
    ]
    names = ["search", "Search", "search", "functions.search", "search"]
    model = Script(*(says(call(name, text, id=text)) for name, text in zip(names, written, strict=True)), says("Done."))
    async with Agent(model, tools=[search], stuck=StuckLimits(hint=2, refuse=4, stop=9)) as agent:
        result = await agent.run("Go.")
    assert made == [("a", 10)] * 3
    assert ["time that search was called" in one.text for one in result.results] == [False, True, True, False, False]
    assert [one.code for one in result.results] == [None, None, None, "stuck_loop", "stuck_loop"]


async def test_repeated_invalid_calls_are_detected_as_repetition(board: Board) -> None:
    """Invalid calls are compared by their JSON."""
    wrong = ['{"wat": 1, "b": 2}', '{"b":2,"wat":1}', '{"b": 2, "wat": 1}']
    answers = [says(call("look", text, id=text)) for text in wrong]
    result, _ = await run(board, *answers, stuck=StuckLimits(hint=9, refuse=3, stop=3))
    assert (result.turn_status, [one.code for one in result.results][2]) == ("error", "stuck_loop")


async def test_a_repeated_call_gets_a_hint_then_is_refused_then_ends_the_run(board: Board) -> None:
    """Also if the repeated call alternates with another one; `stuck=None` disables all of it."""
    limits = StuckLimits(hint=2, refuse=3, stop=4)
    again = [says(call("fail", {"why": "a"}, id=str(number))) for number in range(9)]
    result, model = await run(board, *again, stuck=limits)
    assert (result.status, result.turn_status) == ("failed", "error")
    assert "gets nowhere" in result.reason
    assert board.done == ["fail a", "fail a"]
    assert [one.code for one in result.results] == ["tool_raised", "tool_raised", "stuck_loop", "stuck_loop"]
    assert "2nd time" in tool_texts(model.seen[2])[-1]
    again = [says(call("look", {"what": "a"}, id=str(number))) for number in range(9)]
    board.done.clear()
    ping_pong = [says(call("look", {"what": "ab"[number % 2]}, id=str(number))) for number in range(9)]
    await run(board, *ping_pong, stuck=limits)
    assert board.done == ["look a", "look b"] * 2
    board.done.clear()
    result, _ = await run(board, *again[:8], says("Done."), stuck=None)
    assert (result.status, len(board.done)) == ("completed", 8)


async def test_excess_identical_calls_in_one_message_are_refused_without_ending_the_turn() -> None:
    """A model sees no results while it writes a message, so repetitions within one message are refused and explained."""
    drawn: list[str] = []

    @tool(effect="none")
    async def draw(deck: str, count: int = 1) -> str:
        """Draw from a deck."""
        drawn.append(deck)
        return "an ace" if deck == "marked" else f"card {len(drawn)}"

    def many(deck: str, times: int, of: str) -> Answer:
        spelt = [f'{{"deck":"{deck}"}}', f'{{ "count": 1, "deck": "{deck}" }}']
        return says(*(call("draw", spelt[number % 2], id=f"{of}{number}", position=number) for number in range(times)))

    async with Agent(Script(many("fair", 10, "a"), many("fair", 10, "b"), says("Done.")), tools=[draw]) as agent:
        result = await agent.run("Go.")
    codes = [one.code for one in result.results]
    assert (result.text, len(drawn), codes[:10], codes[10:]) == (
        "Done.",
        11,
        [None] * 6 + ["stuck_loop"] * 4,
        [None] * 5 + ["stuck_loop"] * 5,
    )
    assert "6 times before it in your message" in result.results[6].text
    drawn.clear()

    model = Script(many("marked", 1_000, "a"), says("I stop."))
    async with Agent(model, tools=[draw]) as agent:
        result = await agent.run("Go.")
    assert (result.text, len(drawn), [one.code for one in result.results[5:7]]) == ("I stop.", 6, [None, "stuck_loop"])
    drawn.clear()

    async with Agent(Script(many("marked", 50, "a"), many("marked", 50, "b"), says("I stop.")), tools=[draw]) as agent:
        result = await agent.run("Go.")
    assert (result.text, len(drawn), result.results[-1].code) == ("I stop.", 6, "stuck_loop")


@pytest.mark.parametrize("preset", ["agent", "chat", "worker"])
@pytest.mark.parametrize(
    "given",
    [{"results": []}, {"found": False}, [], {"success": False, "error": "no such page"}],
    ids=["results", "found", "list", "declared"],
)
async def test_repeated_data_results_are_refused_but_never_end_the_run(given: object, preset: PresetName) -> None:
    """Requirements E7, E13: an empty result is an answer. Repetitions get a hint and then a refusal; the run ends as usual."""
    searched: list[str] = []

    @tool(effect="none")
    async def search(query: str) -> object:
        """Search."""
        searched.append(query)
        return given

    again = [says(call("search", {"query": "q"}, id=str(number))) for number in range(6)]
    rules = replace(PRESETS[preset].rules, errors_in_a_row=None) if isinstance(given, dict) and "error" in given else PRESETS[preset].rules
    settings = replace(PRESETS[preset], rules=rules)
    async with Agent(
        Script(*again, says("Nothing.")), tools=[search], settings=settings, stuck=StuckLimits(hint=1, refuse=2, stop=3)
    ) as agent:
        result = await agent.run("Go.")
    assert (result.turn_status, result.text, searched) == ("completed", "Nothing.", ["q"])
    assert [one.code for one in result.results[1:]] == ["stuck_loop"] * 5


async def test_refused_repetitions_of_a_successful_call_are_not_errors_in_a_row(board: Board) -> None:
    """Refusals of a repeated read do not count as errors in a row; refusals of a repeated failing call do."""
    again = [says(call("look", {"what": "a"}, id=str(number))) for number in range(9)]
    settings = Settings(rules=LoopRules(errors_in_a_row=2))
    result, _ = await run(board, *again, says("Done."), stuck=StuckLimits(refuse=2), settings=settings)
    assert (result.text, board.done) == ("Done.", ["look a"])
    same = [says(call("fail", {"why": "a"}, id=str(number))) for number in range(5)]
    result, _ = await run(board, *same, stuck=StuckLimits())
    assert (result.turn_status, result.reason[:21], result.results[-1].code) == ("error", "5 calls in a row fail", "stuck_loop")


async def test_repeated_denials_do_not_end_a_strict_run(board: Board) -> None:
    """Only the five kinds of failure end a strict run; a repeated denial is none of them."""
    again = [says(call("look", {"what": "a"}, id=str(number))) for number in range(6)]
    async with Agent(
        Script(*again, says("I may not.")), tools=board.tools(), preset="worker", policies=[Never()], stuck=StuckLimits(refuse=2, stop=3)
    ) as agent:
        result = await agent.run("Go.")
    assert (result.turn_status, result.text, board.done) == ("completed", "I may not.", [])
    assert {one.failure_class for one in result.results} == {"denied"}
