"""Compaction of long histories through an agent: in time, always valid, and without repeated walks over the history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import AbortController, tool
from callgate._runners.await_host_code import HostAwaits
from callgate.agent import Agent, AgentEvent, Compaction, Notice, estimate_tokens, keep_last, summarise
from callgate.agent.compaction import Compact, Compactor, _problem
from callgate.agent.history import History
from callgate.calls import Image, Text
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from tests.agent.scripted_model import Script, call, says

LONG = "word " * 400
DONE = says("Done.")


@tool(effect="none")
async def read(page: int) -> str:
    """Read a page."""
    return LONG


def chat(turns: int) -> list[Message]:
    messages: list[Message] = [SystemMessage("Be kind.")]
    for number in range(turns):
        messages += [UserMessage(f"Question {number}."), AssistantMessage(parts=(Text(text=LONG),))]
    return messages


async def test_a_history_over_the_threshold_is_compacted_before_the_next_pass() -> None:
    model = Script(DONE)
    events: list[AgentEvent] = []
    compact = Compaction(compact=keep_last(2), at_tokens=2_000)
    async with Agent(model, compact=compact, instructions="You help.") as agent:
        result = await agent.run("And now?", history=chat(10), on_event=events.append)
    assert model.seen[0] == [
        SystemMessage("You help."),
        SystemMessage("Be kind."),
        UserMessage("Question 9."),
        AssistantMessage(parts=(Text(text=LONG),)),
        UserMessage("And now?"),
    ]
    assert result.messages[:4] == tuple(model.seen[0][1:])
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert (notice.kind, notice.hidden) == ("compacted", True)


async def test_a_short_history_is_not_compacted_and_each_message_is_estimated_once() -> None:
    """The estimate is incremental: each message is estimated once over all turns of a conversation."""
    weighed: list[Message] = []

    def weigh(message: Message) -> int:
        weighed.append(message)
        return 1

    def never(messages: Sequence[Message]) -> Sequence[Message]:
        raise AssertionError("there was nothing to do")

    model = Script(*[DONE] * 5)
    async with Agent(model, compact=Compaction(compact=never, at_tokens=1_000, estimate=weigh)) as agent:
        for number in range(5):
            result = await agent.run(f"Question {number}.", conversation="c")
    assert len(weighed) == len(result.messages) - 1 == 9  # the last answer is estimated before the next pass
    assert all(a is b for a, b in zip(weighed, result.messages, strict=False))


async def test_compaction_of_a_long_turn_keeps_its_task_and_the_result_of_every_kept_call() -> None:
    """The turn has one user message and many iterations with tool calls."""
    model = Script(*[says(call("read", {"page": page}, id=f"p{page}")) for page in range(12)], DONE)
    async with Agent(model, tools=[read], compact=Compaction(compact=keep_last(3), at_tokens=2_500), stuck=None) as agent:
        result = await agent.run("Read the book.")
    assert result.completed
    assert len(result.results) == 12
    for messages in model.seen:
        assert messages[0] == UserMessage("Read the book.")
        assert _problem(messages) == ""
        assert sum(map(estimate_tokens, messages)) < 2_500 + 600
    assert len(model.seen[-1]) < 12


async def test_a_summary_replaces_the_messages_that_compaction_removed() -> None:
    gone: list[Message] = []

    async def write(messages: Sequence[Message]) -> str:
        await asyncio.sleep(0)
        gone.extend(messages)
        return "They asked nine questions."

    model = Script(DONE)
    async with Agent(model, compact=Compaction(compact=summarise(write, keep=1), at_tokens=2_000)) as agent:
        await agent.run("And now?", history=chat(9))
    assert gone == chat(9)[1:]
    head, summary, last = model.seen[0]
    assert (head, last) == (SystemMessage("Be kind."), UserMessage("And now?"))
    assert isinstance(summary, UserMessage)
    assert "They asked nine questions." in summary.content


async def test_the_next_summary_receives_the_previous_summary() -> None:
    given: list[list[Message]] = []

    def write(messages: Sequence[Message]) -> str:
        given.append(list(messages))
        return f"Summary {len(given)}."

    model = Script(*[says(LONG)] * 8)
    async with Agent(model, compact=Compaction(compact=summarise(write, keep=2), at_tokens=1_500)) as agent:
        for number in range(8):
            await agent.run(f"Question {number}. {LONG}", conversation="c")
    assert len(given) > 1
    assert "Summary 1." in str(given[1][0])


def fails(messages: Sequence[Message]) -> Sequence[Message]:
    raise OSError("no model for that")


def removes_results(messages: Sequence[Message]) -> Sequence[Message]:
    return [message for message in messages if not isinstance(message, ToolMessage)]


def returns_a_value_that_is_not_a_message(messages: Sequence[Message]) -> Sequence[Message]:
    return ["a text"]  # type: ignore[list-item]


def returns_none(messages: Sequence[Message]) -> Sequence[Message]:
    return None  # type: ignore[return-value]


def returns_an_empty_list(messages: Sequence[Message]) -> Sequence[Message]:
    return []


def removes_the_task(messages: Sequence[Message]) -> Sequence[Message]:
    return [message for message in messages if not isinstance(message, UserMessage)]


def makes_it_longer(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages, UserMessage(LONG)]


@pytest.mark.parametrize(
    "hook",
    [fails, removes_results, returns_a_value_that_is_not_a_message, returns_none, returns_an_empty_list, removes_the_task, makes_it_longer],
)
async def test_a_compaction_hook_that_fails_or_returns_an_invalid_history_changes_nothing(
    hook: Compact, caplog: pytest.LogCaptureFixture
) -> None:
    """The returned history is used only if it is a valid conversation with a task, and shorter. The run continues either way."""
    model = Script(says(call("read", {"page": 1})), DONE)
    async with Agent(model, tools=[read], compact=Compaction(compact=hook, at_tokens=100)) as agent:
        result = await agent.run("Read the book.")
    assert result.completed
    assert len(model.seen[1]) == 3
    assert "history stays as it is" in caplog.text or "it stays as it is" in caplog.text


async def test_a_hook_that_cannot_shorten_is_called_again_only_after_the_history_grows() -> None:
    """The history must first grow by a tenth."""
    asked: list[int] = []

    def same(messages: Sequence[Message]) -> Sequence[Message]:
        asked.append(len(messages))
        return messages

    history = History(chat(30))
    compactor = Compactor(Compaction(compact=same, at_tokens=100), HostAwaits(), "c")
    for _ in range(50):
        assert await compactor.before_pass(history, AbortController().signal) is None
        history.user("Short.")
    assert len(asked) == 1
    history.user(LONG * 10)
    await compactor.before_pass(history, AbortController().signal)
    assert len(asked) == 2


async def test_a_kill_ends_a_hanging_compaction_hook() -> None:
    began = asyncio.Event()

    async def hang(messages: Sequence[Message]) -> Sequence[Message]:
        began.set()
        await asyncio.Event().wait()
        return messages

    async with Agent(Script(DONE), compact=Compaction(compact=hang, at_tokens=1)) as agent:
        running = asyncio.ensure_future(agent.run("Hello.", conversation="c"))
        await began.wait()
        agent.kill("c")
        result = await running
    assert result.turn_status == "stopped_by_user"
    assert result.messages == (UserMessage("Hello."),)


async def test_a_compaction_hook_that_exceeds_its_timeout_is_abandoned() -> None:
    async def hang(messages: Sequence[Message]) -> Sequence[Message]:
        await asyncio.Event().wait()
        return messages

    async with Agent(Script(DONE), compact=Compaction(compact=hang, at_tokens=1, timeout_s=0.01)) as agent:
        assert (await agent.run("Hello.")).completed


def test_the_token_estimate_uses_four_characters_per_token_but_not_for_image_data() -> None:
    assert estimate_tokens(UserMessage("x" * 400)) == 104
    assert estimate_tokens(SystemMessage("x" * 3)) == 5
    assert estimate_tokens(AssistantMessage(parts=(ToolCall(id="1", name="read", arguments='{"a": 1}'),))) == 7
    assert estimate_tokens(ToolMessage(call_id="1", name="read", content=(Image(data="A" * 1_000_000, mime_type="image/png"),))) < 2_000


@pytest.mark.parametrize("make", [keep_last, lambda count: summarise(lambda _: "", keep=count)])
def test_keeping_zero_messages_is_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make(0)  # type: ignore[operator]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = [SystemMessage(f"head {number}") for number in range(draw(st.integers(0, 2)))]
    number = 0
    for _ in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["user", "answer", "calls", "system"])):
            case "user":
                messages.append(UserMessage(f"user {len(messages)}"))
            case "answer":
                messages.append(AssistantMessage(parts=(Text(text=f"answer {len(messages)}"),)))
            case "system":
                messages.append(SystemMessage(f"note {len(messages)}"))
            case _:
                ids = [str(number + one) for one in range(draw(st.integers(1, 3)))]
                number += len(ids)
                messages.append(AssistantMessage(parts=tuple(ToolCall(id=one, name="f") for one in ids)))
                messages += [ToolMessage(call_id=one, name="f") for one in ids]
    return messages


@given(conversations(), st.integers(1, 30))
async def test_the_kept_messages_always_form_a_valid_conversation(messages: list[Message], count: int) -> None:
    """It has the leading system messages, the last user message, and the last `count` messages without a gap, in their original order."""
    kept = list(keep_last(count)(messages))  # type: ignore[arg-type]
    assert _problem(kept) == ""
    places = [next(index for index, one in enumerate(messages) if one is message) for message in kept]
    assert places == sorted(set(places))
    assert messages[-count:] == kept[len(kept) - min(count, len(messages)) :]
    head = next((index for index, one in enumerate(messages) if not isinstance(one, SystemMessage)), len(messages))
    assert messages[:head] == kept[:head]
    asked = [one for one in messages if isinstance(one, UserMessage)]
    assert not asked or asked[-1] in kept
    summary = summarise(lambda gone: str(len(gone)), keep=count)(messages)
    shorter = list(await summary)  # type: ignore[misc]
    assert _problem(shorter) == ""
    assert len(shorter) == len(kept) + (len(kept) < len(messages))
