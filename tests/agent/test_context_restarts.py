"""Results that add to the context, through an agent: no entry in the history, and one more pass that contains the item."""

from __future__ import annotations

import asyncio
import logging

import pytest

from callgate import Engine, Restarted, Tool, tool
from callgate.agent import Agent, CallEnded, ContextRestarts
from callgate.agent.context_restarts import Enrichment
from callgate.agent.history import History
from callgate.agent.loop_settings import Settings
from callgate.agent.run_events import AgentEvent
from callgate.calls import Image, Text
from callgate.errors import UsageError
from callgate.loop_decision import LoopRules
from callgate.messages import AssistantMessage, Message, ToolMessage, UserMessage
from callgate.models.model_events import TextDelta
from callgate.testing import ManualClock
from tests.agent.scripted_model import Script, call, says, tool_texts
from tests.engine_calls import call as raw
from tests.engine_calls import kinds, said
from tests.host_fakes import Asks


class Cinema:
    """Tools that return context items, inline or through the stash, and one that fails."""

    def __init__(self, restarts: ContextRestarts) -> None:
        self.restarts = restarts
        self.looked = 0

    def tools(self) -> list[Tool]:
        cinema = self

        @tool(effect="none")
        async def look(kind: str = "film", item: str = "A film about cats.") -> dict[str, object]:
            """Look at a film."""
            cinema.looked += 1
            return {"type": f"context_restart_{kind}", "enhanced_context_item": item}

        @tool(effect="none")
        async def still(keys: str = "good") -> dict[str, object]:
            """Take a picture out of a film."""
            cinema.looked += 1
            key = cinema.restarts.stash([Text(text="A still:"), Image(data="AAAA", mime_type="image/png")])
            data: dict[str, object] = {"type": "context_restart_image", "pending_context_key": key if keys == "good" else "gone"}
            return data | ({"enhanced_context_item": "not this one"} if keys == "good" else {})

        @tool(effect="none")
        async def fail() -> str:
            """Fail."""
            raise ValueError("no film")

        return [look, still, fail]


@pytest.fixture
def restarts() -> ContextRestarts:
    return ContextRestarts()


DONE = says("Cats.")


def added(messages: list[Message]) -> list[str]:
    """Return the parts of the last message of a request, without its label."""
    last = messages[-1]
    assert isinstance(last, UserMessage)
    assert isinstance(last.content, tuple)
    assert isinstance(last.content[0], Text)
    assert "material, not a message" in last.content[0].text
    return [part.text if isinstance(part, Text) else part.mime_type for part in last.content[1:] if isinstance(part, (Text, Image))]


async def test_an_inline_item_is_in_the_next_request_and_its_call_is_not_in_the_history(restarts: ContextRestarts) -> None:
    """Requirements A44, A48, A58: the model is asked again with the item in its context; the history has no entry for the call."""
    model = Script(says(call("look")), DONE)
    events: list[AgentEvent] = []
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        result = await agent.run("What is it about?", on_event=events.append)
        assert "call.restarted" in kinds(agent.engine)
    assert model.seen[0] == [UserMessage("What is it about?")]
    assert model.seen[1][0] == UserMessage("What is it about?")
    assert added(model.seen[1]) == ["A film about cats."]
    assert len(model.seen[1]) == 2
    assert result.completed
    assert result.results == ()
    assert result.messages == (UserMessage("What is it about?"), AssistantMessage(parts=(Text(text="Cats."),), api="scripted"))
    assert [type(event.outcome) for event in events if isinstance(event, CallEnded)] == [Restarted]


async def test_text_before_a_restarting_call_stays_in_the_history(restarts: ContextRestarts) -> None:
    model = Script(says("Let me look.", call("look")), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        result = await agent.run("What is it about?")
    said_before = result.messages[1]
    assert isinstance(said_before, AssistantMessage)
    assert (said_before.text, said_before.calls) == ("Let me look.", ())
    assert added(model.seen[1]) == ["A film about cats."]


async def test_a_stashed_item_takes_precedence_over_an_inline_item_and_is_used_once(restarts: ContextRestarts) -> None:
    model = Script(says(call("still")), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        await agent.run("Show me.")
    assert added(model.seen[1]) == ["A still:", "image/png"]
    assert len(restarts) == 0


async def test_an_unknown_stash_key_is_logged_and_the_turn_continues_without_the_item(
    restarts: ContextRestarts, caplog: pytest.LogCaptureFixture
) -> None:
    model = Script(says(call("still", {"keys": "bad"})), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        result = await agent.run("Show me.")
    assert model.seen[1] == model.seen[0]
    assert result.completed
    assert "No context item is stashed" in caplog.text


async def test_a_second_restart_of_the_same_kind_in_a_turn_is_an_ordinary_result(restarts: ContextRestarts) -> None:
    """Another suffix may still restart in the same turn."""
    model = Script(says(call("look")), says(call("look")), says(call("look", {"kind": "sound", "item": "A bang."})), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        result = await agent.run("What is it about?", conversation="c")
        assert [one.name for one in result.results] == ["look"]
        assert "A film about cats." in tool_texts(model.seen[2])[0]
        assert len(tool_texts(model.seen[3])) == 1
        assert [text for text in added(model.seen[3]) if "tool has brought" not in text] == ["A film about cats.", "A bang."]


async def test_context_items_last_for_one_turn_and_the_next_turn_may_restart_again(restarts: ContextRestarts) -> None:
    """The item is not part of the history."""
    model = Script(says(call("look")), DONE, says(call("look")), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        await agent.run("What is it about?", conversation="c")
        await agent.run("And now?", conversation="c")
    assert model.seen[2][-1] == UserMessage("And now?")
    assert added(model.seen[3]) == ["A film about cats."]


async def test_a_context_item_is_in_every_further_request_of_its_turn(restarts: ContextRestarts) -> None:
    """It comes after the history, which grows from pass to pass."""
    model = Script(says(call("look")), says(call("fail")), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        await agent.run("What is it about?")
    assert isinstance(model.seen[2][-2], ToolMessage)
    assert added(model.seen[2]) == ["A film about cats."]


async def test_restarts_with_keep_store_context_items_in_the_history() -> None:
    restarts = ContextRestarts(keep=True)
    model = Script(says(call("look")), DONE, DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        await agent.run("What is it about?", conversation="c")
        await agent.run("And now?", conversation="c")
    assert added(model.seen[1]) == ["A film about cats."]
    assert len(model.seen[1]) == 2
    assert added(model.seen[2][:2]) == ["A film about cats."]
    assert model.seen[2][-1] == UserMessage("And now?")


async def test_other_calls_in_the_message_of_a_restarting_call_keep_their_results(restarts: ContextRestarts) -> None:
    """Only the restarting call is not in the history."""
    model = Script(says(call("look"), call("fail", position=1)), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        result = await agent.run("What is it about?")
    message = result.messages[1]
    assert isinstance(message, AssistantMessage)
    assert [one.name for one in message.calls] == ["fail"]
    assert [one.name for one in result.results] == ["fail"]
    assert added(model.seen[1]) == ["A film about cats."]


async def test_two_restarts_of_one_kind_in_one_message_restart_once(restarts: ContextRestarts) -> None:
    model = Script(says(call("look"), call("look", {"item": "Dogs."}, position=1)), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        result = await agent.run("What is it about?")
    assert len(result.results) == 1
    assert len(added(model.seen[1])) == 1


async def test_a_restart_resets_the_count_of_errors_in_a_row(restarts: ContextRestarts) -> None:
    """Requirement A49: two failures, a restart, two failures. Three in a row would end the turn."""
    fail = says(call("fail"))
    model = Script(fail, says(call("fail", {"x": 1})), says(call("look")), fail, says(call("fail", {"x": 2})), DONE)
    settings = Settings(rules=LoopRules(errors_in_a_row=3))
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts, settings=settings, stuck=None) as agent:
        result = await agent.run("What is it about?")
    assert result.completed
    assert len(result.results) == 4


async def test_a_restart_counts_as_an_iteration(restarts: ContextRestarts) -> None:
    model = Script(says(call("look")), DONE)
    async with Agent(model, tools=Cinema(restarts).tools(), restart=restarts) as agent:
        assert (await agent.run("What is it about?")).spent.iterations == 1


async def test_concurrent_turns_each_get_only_their_own_context_items(restarts: ContextRestarts) -> None:
    models = [Script(says(call("look", {"item": f"Film {number}."})), DONE) for number in range(8)]
    async with Engine(Cinema(restarts).tools(), restart=restarts) as engine:
        agents = [Agent(model, engine) for model in models]
        await asyncio.gather(*(agent.run("What is it about?") for agent in agents))
    assert [added(model.seen[1]) for model in models] == [[f"Film {number}."] for number in range(8)]


async def test_context_items_of_a_failed_message_are_discarded(restarts: ContextRestarts) -> None:
    """If a message fails, the items of its calls that started early are not used."""
    turn = Enrichment(restarts)
    with turn:
        assert await restarts({"type": "context_restart_film", "enhanced_context_item": "lost"})
    assert turn.tail() == ()
    assert turn.disabled == frozenset()
    with turn:
        assert await restarts({"type": "context_restart_film", "enhanced_context_item": "kept"})
    turn.settle(History())
    assert added(list(turn.tail())) == ["kept"]


async def test_a_result_of_another_type_or_without_an_item_is_an_ordinary_result(restarts: ContextRestarts) -> None:
    """Requirement A58: only types with the prefix `context_restart_` restart."""

    @tool(effect="none")
    async def look(type: str, item: str | None = None) -> dict[str, object]:
        """Look."""
        return {"type": type, "enhanced_context_item": item}

    for arguments in (
        {"type": "context_restarted", "item": "A film."},
        {"type": "film", "item": "A film."},
        {"type": "context_restart_film"},
    ):
        model = Script(says(call("look", arguments)), DONE)
        async with Agent(model, tools=[look], restart=restarts) as agent:
            result = await agent.run("What is it about?")
        assert [one.data for one in result.results] == [{"type": arguments["type"], "enhanced_context_item": arguments.get("item")}]


async def test_context_items_of_a_nested_turn_stay_in_that_turn(restarts: ContextRestarts) -> None:
    """A tool may run an agent on the same engine."""
    inner = Script(says(call("look", {"item": "Inner."})), DONE)
    outer = Script(says(call("ask")), says(call("look", {"item": "Outer."})), DONE)
    async with Engine(Cinema(restarts).tools(), restart=restarts) as engine:

        @tool(effect="none")
        async def ask() -> str:
            """Ask another agent."""
            return (await Agent(inner, engine).run("What is it about?")).text

        engine.register(ask)
        await Agent(outer, engine).run("Ask, then look.")
    assert added(inner.seen[1]) == ["Inner."]
    assert isinstance(outer.seen[1][-1], ToolMessage)
    assert added(outer.seen[2]) == ["Outer."]


async def test_restarting_calls_outside_a_turn_have_ordinary_results(restarts: ContextRestarts) -> None:
    """Without a turn there is no next request that could contain the item."""
    async with Engine(Cinema(restarts).tools(), restart=restarts) as engine:
        assert (await said(engine, raw("look"))).success


async def test_a_host_with_its_own_loop_can_collect_context_items(restarts: ContextRestarts) -> None:
    async with Engine(Cinema(restarts).tools(), restart=restarts) as engine:
        with Enrichment(restarts) as turn:
            assert isinstance(await engine.call(raw("look")), Restarted)
    assert "A film about cats." in str(turn.parts)


async def test_context_items_are_kept_while_a_run_waits_for_approval(restarts: ContextRestarts) -> None:
    model = Script(says(call("look"), call("fail", position=1)), says(call("look")), DONE)
    async with Engine(Cinema(restarts).tools(), policies=[Asks("fail")], restart=restarts) as engine, Agent(model, engine) as agent:
        waiting = await agent.run("What is it about?", conversation="c")
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
    assert added(model.seen[1]) == ["A film about cats."]
    assert [one.name for one in result.results] == ["fail", "look"]


async def test_a_stash_holds_16_items_for_300_seconds_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """When a 17th item is added, the oldest one is dropped."""
    clock = ManualClock()
    restarts = ContextRestarts(clock=clock)
    keys = [restarts.stash(f"item {number}") for number in range(17)]
    assert len(restarts) == 16
    assert "dropped" in caplog.text
    clock.advance(299.0)
    with Enrichment(restarts) as turn:
        for number in (0, 1):
            assert await restarts({"type": f"context_restart_{number}", "pending_context_key": keys[number]})
        assert "item 0" not in str(turn.parts)
        assert "item 1" in str(turn.parts)
        clock.advance(1.0)
        assert len(restarts) == 0
        assert await restarts({"type": "context_restart_2", "pending_context_key": keys[2]})
        assert "item 2" not in str(turn.parts)


def test_zero_limits_and_invalid_items_are_refused() -> None:
    for limits in ({"ttl_s": 0.0}, {"entries": 0}):
        with pytest.raises(UsageError):
            ContextRestarts(**limits)
    with pytest.raises(UsageError, match="object"):
        ContextRestarts().stash(object())


async def test_any_json_value_can_be_a_context_item(restarts: ContextRestarts) -> None:
    """The JSON of a content part becomes that part; other JSON is added as text."""
    for item, shown in (
        ("text", [Text(text="text")]),
        ({"type": "text", "text": "a part"}, [Text(text="a part")]),
        (["one", {"two": 2}], [Text(text="one"), Text(text='{"two":2}')]),
        ({"type": "image"}, [Text(text='{"type":"image"}')]),
    ):
        with Enrichment(restarts) as turn:
            assert await restarts({"type": "context_restart_x", "enhanced_context_item": item})
        assert list(turn.parts[1:]) == shown


async def test_an_agent_with_a_given_engine_refuses_its_own_restart_handler(restarts: ContextRestarts) -> None:
    async with Engine() as engine:
        with pytest.raises(UsageError, match="restart"):
            Agent(Script(), engine, restart=restarts)


async def test_a_custom_restart_handler_gets_the_data_and_can_restart() -> None:
    """Requirement A44: the handler gets the data of the result, and restarts by returning true."""
    seen: list[object] = []

    async def mine(data: object) -> bool:
        seen.append(data)
        return True

    model = Script([TextDelta("x"), *says(call("look"))], DONE)
    async with Agent(model, tools=Cinema(ContextRestarts()).tools(), restart=mine) as agent:
        result = await agent.run("What is it about?")
    assert seen == [{"type": "context_restart_film", "enhanced_context_item": "A film about cats."}]
    assert result.results == ()


async def test_control_characters_of_a_result_are_escaped_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="callgate")

    @tool(effect="none")
    async def look() -> dict[str, object]:
        """Look."""
        return {"type": "context_restart_\x1b[2J\nfake line\u202e"}

    async with Engine([look], restart=ContextRestarts()) as engine:
        await Agent(Script(says(call("look", {})), says("Done.")), engine).run("Go.")
    [line] = [one.getMessage() for one in caplog.records if "neither an item nor a key" in one.getMessage()]
    assert "\\x1b" in line
    assert not {"\x1b", "\n", "\u202e"} & set(line)
