"""A message whose calls waited for an approval is in the conversation once, as the model wrote it, with one result per call, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal
from callgate.agent import Agent, AgentEvent, CallEnded, Compaction, RunResult, keep_last
from callgate.agent.recorded_run import load_run
from callgate.calls import Answered, Text
from callgate.messages import AssistantMessage, Message, Reasoning, ToolMessage
from callgate.models.model_events import Finished
from callgate.models.wire import codec, known_apis
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames
from callgate.replay import Replay
from callgate.testing import ManualClock
from tests.agent.recording_tools import RecordingTools
from tests.agent.scripted_model import Answer, Script, call, says
from tests.host_fakes import Asks

LIST = {"gemini.generate": "contents", "openai.responses": "input", "gemini.interactions": "input"}
"""The key of the conversation in a request, by API; other APIs use `messages`."""

READ_ASK_READ = says(
    "I look, change and look again.",
    call("look", {"what": "before"}, id="1"),
    call("change", {"what": "it"}, id="2", position=1),
    call("look", {"what": "after"}, id="3", position=2),
)
here_and_elsewhere = pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])


class ReopenableConversation:
    """A conversation over one journal. Its engine can be replaced by a new one, as in another process."""

    def __init__(self, path: Path, *answers: Answer, clock: ManualClock | None = None, **options: Any) -> None:
        self.model = Script(*answers)
        self.recording = RecordingTools()
        self.told: list[AgentEvent] = []
        self._path, self._options, self._clock = path / "journal.db", options, clock
        self._open()

    def _open(self) -> None:
        clock: dict[str, Any] = {} if self._clock is None else {"clock": self._clock}
        self.engine = Engine(self.recording.tools(), policies=[Asks("change")], journal=SqliteJournal(self._path), **clock)
        self.agent = Agent(self.model, self.engine, **self._options)

    async def elsewhere(self) -> None:
        await self.engine.close()
        self._open()

    async def resumed(self, waiting: RunResult, elsewhere: bool, *answers: bool) -> RunResult:
        """Answer as many approvals as there are answers, from the first, and resume the run."""
        assert waiting.pending is not None
        if elsewhere:
            await self.elsewhere()
            await self.engine.runs.open(Scope(run=waiting.run))
        for approval, allow in zip(waiting.pending.approvals, answers, strict=False):
            await self.engine.answer(approval.approval_id, allow=allow, by="ann")
        return await self.agent.resume(waiting.run if elsewhere else waiting, on_event=self.told.append)

    def is_on_record(self, result: RunResult) -> None:
        """Assert that the journal restores the run exactly as it was."""
        assert load_run(self.engine.journal, self.engine.blobs, result.run).history.messages == list(result.messages)
        assert Replay.of(self.engine.journal, result.run, self.engine.blobs).differences == ()


def sent(api: str, messages: Sequence[Message]) -> list[str]:
    """Return the entries of the request's conversation as the JSON that the provider reads."""
    body = json.loads(codec(api).encode(ModelRequest(model="m", messages=messages), WireNames(), {}).body)
    return [json.dumps(entry) for entry in body[LIST.get(api, "messages")]]


def paired(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return each call's id with the text of its result; fail if a result is not directly after its message, in order."""
    found: list[tuple[str, str]] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        assert not isinstance(message, ToolMessage), "this result has no call before it"
        for one in message.calls if isinstance(message, AssistantMessage) else ():
            result = rest.pop(0)
            assert isinstance(result, ToolMessage)
            assert result.call_id == one.id
            found.append((one.id, result.text))
    return found


@pytest.mark.parametrize("api", known_apis())
@here_and_elsewhere
async def test_the_request_after_an_approval_extends_the_previous_one_by_the_message_once(
    api: str, elsewhere: bool, tmp_path: Path
) -> None:
    """An extended request hits the provider's prompt cache, and templates that allow each turn once accept it."""
    written = AssistantMessage(parts=READ_ASK_READ[-1].message.parts, api=api) if isinstance(READ_ASK_READ[-1], Finished) else None
    assert written is not None
    asks = [*READ_ASK_READ[:-1], Finished(reason="tool_calls", message=written, usage=None)]
    talk = ReopenableConversation(tmp_path, says(call("look", {"what": "first"}, id="0")), asks, says("Done."))
    waiting = await talk.agent.run("Go.", conversation="c")
    result = await talk.resumed(waiting, elsewhere, True)
    assert result.text == "Done."
    before, after = talk.model.seen[1:]
    assert sent(api, after)[: len(sent(api, before))] == sent(api, before)
    assert after[len(before)] == written
    assert paired(after)[1:] == [("1", "saw before"), ("2", "changed it"), ("3", "saw after")]
    assert [one.id for one in result.results] == ["0", "1", "2", "3"]
    talk.is_on_record(result)
    await talk.engine.close()


@here_and_elsewhere
async def test_results_of_several_approvals_in_one_message_keep_the_order_of_the_calls(elsewhere: bool, tmp_path: Path) -> None:
    """Some calls are allowed, denied or expired, beside reads; the approvals are answered in several steps."""
    clock = ManualClock()
    asked = [call("look", {"what": "a"}, id="0"), *(call("change", {"what": str(n)}, id=str(n), position=n) for n in (1, 2, 3))]
    talk = ReopenableConversation(
        tmp_path, says("Well.", *asked, call("look", {"what": "b"}, id="4", position=4)), says("Done."), clock=clock
    )
    waiting = await talk.agent.run("Go.", conversation="c")
    assert [one for one, _ in paired(waiting.messages)] == ["0", "1", "2", "3", "4"]
    assert [one.id for one in waiting.results] == ["0", "4"]
    partly = await talk.resumed(waiting, elsewhere, True, False)
    assert (partly.status, talk.recording.changed) == ("waiting", ["1"])
    assert [one.id for one in partly.results] == ["0", "1", "2", "4"]
    clock.advance(10 * 24 * 3600.0)
    asked_again = await talk.resumed(partly, elsewhere)
    assert (asked_again.status, talk.recording.changed) == ("waiting", ["1"])
    result = await talk.resumed(asked_again, elsewhere, True)
    assert result.text == "Done."
    texts = dict(paired(result.messages))
    assert ([*texts], texts["1"], texts["3"], talk.recording.changed) == (["0", "1", "2", "3", "4"], "changed 1", "changed 3", ["1", "3"])
    assert "denied" in texts["2"]
    assert [one.id for one in result.results] == ["0", "1", "2", "3", "4"]
    assert len([message for message in result.messages if isinstance(message, AssistantMessage)]) == 2
    talk.is_on_record(result)
    await talk.engine.close()


async def test_a_waiting_call_has_a_placeholder_result_until_it_is_answered(tmp_path: Path) -> None:
    """If the conversation continues meanwhile, the model knows the call, and the provider finds a result for each call."""
    talk = ReopenableConversation(tmp_path, READ_ASK_READ, says("In between."), says("Done."))
    waiting = await talk.agent.run("Go.", conversation="c")
    assert [one for one, _ in paired(waiting.messages)] == ["1", "2", "3"]
    await talk.agent.run("Still there?", conversation="c")
    assert "waits for a human's answer" in dict(paired(talk.model.seen[1]))["2"]
    assert not any(message.is_error for message in waiting.messages if isinstance(message, ToolMessage))
    await talk.engine.close()


@here_and_elsewhere
async def test_a_conversation_that_continued_meanwhile_gets_the_result_at_its_call(elsewhere: bool, tmp_path: Path) -> None:
    """The message is not repeated at the end, and the request does not end with the model's own message."""
    talk = ReopenableConversation(tmp_path, READ_ASK_READ, says("In between."), says("Done."), says("Fine."))
    waiting = await talk.agent.run("Go.", conversation="c")
    await talk.agent.run("Still there?", conversation="c")
    result = await talk.resumed(waiting, elsewhere, True)
    assert result.text == "Done."
    assert [text for _, text in paired(result.messages)] == ["saw before", "changed it", "saw after"]
    shown = talk.model.seen[2]
    assert not isinstance(shown[-1], AssistantMessage)
    assert ("In between." in str(shown)) is not elsewhere  # another process knows only the run
    assert sum(len(message.calls) for message in shown if isinstance(message, AssistantMessage)) == 3
    talk.is_on_record(result)
    after = await talk.agent.run("And?", conversation="c")
    assert len(paired(after.messages)) == 3
    talk.is_on_record(after)
    await talk.engine.close()


async def test_a_waiting_message_that_was_compacted_away_is_restored_whole(tmp_path: Path) -> None:
    filler = [says(f"Answer {number}.") for number in range(4)]
    talk = ReopenableConversation(
        tmp_path, READ_ASK_READ, *filler, says("Done."), compact=Compaction(compact=keep_last(2), at_tokens=30, estimate=lambda _: 10)
    )
    waiting = await talk.agent.run("Go.", conversation="c")
    for number in range(4):
        await talk.agent.run(f"Question {number}?", conversation="c")
    result = await talk.resumed(waiting, False, True)
    assert result.text == "Done."
    assert [text for _, text in paired(result.messages)][-3:] == ["saw before", "changed it", "saw after"]
    await talk.engine.close()


async def test_calls_with_the_same_id_in_one_message_each_get_their_own_result(tmp_path: Path) -> None:
    """Some servers give all calls of a message the same id; an approval still applies to its own call."""
    same = says(
        call("change", {"what": "a"}, id="x"), call("look", {"what": "b"}, id="x", position=1), call("change", {"what": "c"}, id="x")
    )
    talk = ReopenableConversation(tmp_path, same, says("Done."))
    waiting = await talk.agent.run("Go.", conversation="c")
    result = await talk.resumed(waiting, False, True, True)
    assert [text for _, text in paired(result.messages)] == ["changed a", "saw b", "changed c"]
    assert talk.recording.changed == ["a", "c"]
    await talk.engine.close()


@here_and_elsewhere
async def test_the_event_of_a_resumed_call_has_its_position_in_the_message(elsewhere: bool, tmp_path: Path) -> None:
    talk = ReopenableConversation(tmp_path, READ_ASK_READ, says("Done."))
    waiting = await talk.agent.run("Go.", conversation="c")
    await talk.resumed(waiting, elsewhere, True)
    ended = [event for event in talk.told if isinstance(event, CallEnded)]
    assert [(one.position, type(one.outcome)) for one in ended] == [(1, Answered)]
    await talk.engine.close()


async def test_reasoning_before_waiting_calls_is_kept_once_before_them(tmp_path: Path) -> None:
    parts = (
        Reasoning(text="Hm.", opaque={"signature": "s"}),
        *(READ_ASK_READ[-1].message.parts if isinstance(READ_ASK_READ[-1], Finished) else ()),
    )
    written = AssistantMessage(parts=parts, api="anthropic.messages")
    talk = ReopenableConversation(
        tmp_path, [*READ_ASK_READ[:-1], Finished(reason="tool_calls", message=written, usage=None)], says("Done.")
    )
    waiting = await talk.agent.run("Go.", conversation="c")
    result = await talk.resumed(waiting, True, True)
    assert result.messages[1] == written
    assert (
        sum(isinstance(part, Text) for message in result.messages if isinstance(message, AssistantMessage) for part in message.parts) == 2
    )
    await talk.engine.close()
