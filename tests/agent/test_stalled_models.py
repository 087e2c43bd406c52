"""A model that stops sending, or whose answer breaks off: how long an agent waits, and how its run ends."""

from __future__ import annotations

import asyncio

import pytest

from callgate.agent import Agent, RunResult
from callgate.messages import AssistantMessage
from callgate.models.model_events import TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.stream import StreamLimits
from callgate.testing import ReplayModel
from callgate.testing.scripted_models import Recording
from tests.agent.scripted_model import Answer, Gate, Pause, Script, Step, call, ends, says
from tests.waiting import PATIENCE_S, let_pass

FAR_S = 10 * PATIENCE_S
"""Far longer than a test waits, so that the time which really passes makes no difference."""


async def after(seconds: float, agent: Agent, gate: Gate) -> asyncio.Task[RunResult]:
    """Start a run whose model sends nothing for this time."""
    running = asyncio.ensure_future(agent.run("Go."))
    await gate.reached.wait()
    let_pass(seconds)
    for _ in range(20):
        await asyncio.sleep(0)
    return running


@pytest.mark.parametrize(
    ("variable", "limits", "allowed_s"),
    [
        (None, None, 120.0),
        (str(int(FAR_S * 1000)), None, FAR_S),
        ("1", None, 10.0),
        ("10000", StreamLimits(idle_s=2 * FAR_S), 2 * FAR_S),
    ],
    ids=["by default", "by the environment", "by too small a number there", "by its own limits"],
)
@pytest.mark.parametrize("spoken", [True, False], ids=["in an answer", "before it"])
async def test_a_silent_model_times_out_after_the_idle_limit_and_not_before(
    variable: str | None, limits: StreamLimits | None, allowed_s: float, spoken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is None:
        monkeypatch.delenv("STREAM_SDK_CALL_TIMEOUT_MS", raising=False)
    else:
        monkeypatch.setenv("STREAM_SDK_CALL_TIMEOUT_MS", variable)
    for passed_s, silent in ((allowed_s / 2, False), (allowed_s + 1, True)):
        gate = Gate()
        begins: list[Step] = [TextDelta("I ")] if spoken else []
        async with Agent(Script([*begins, gate, *says("Done.")]), stream_limits=limits) as agent:
            running = await after(passed_s, agent, gate)
            gate.open.set()
            result = await asyncio.wait_for(running, PATIENCE_S)
        assert result.turn_status == ("timeout" if silent else "completed")


async def test_each_beat_of_a_model_restarts_the_idle_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit applies to each silence, not to the whole pass, which here lasts many times as long."""
    monkeypatch.setenv("STREAM_SDK_CALL_TIMEOUT_MS", str(int(FAR_S * 1000)))

    def alive(context: StreamingContext) -> None:
        context.beat()
        let_pass(0.7 * FAR_S)

    gate, alive_five_times = Gate(), list[Step]([alive, Pause()]) * 5
    async with Agent(Script([*alive_five_times, gate, *says("Done.")])) as agent:
        running = await after(0, agent, gate)
        gate.open.set()
        assert (await asyncio.wait_for(running, PATIENCE_S)).turn_status == "completed"


async def test_the_first_event_can_have_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    async with Agent(Script([gate, *says("Done.")]), stream_limits=StreamLimits(idle_s=0.01, first_s=FAR_S)) as agent:
        running = await after(FAR_S / 2, agent, gate)
        gate.open.set()
        assert (await asyncio.wait_for(running, PATIENCE_S)).turn_status == "completed"


STOPS: dict[str, Answer] = {
    "without a word": [TextDelta("All is "), TextDelta("well")],
    "and says so": [TextDelta("All is "), TextDelta("well"), ends(reason="cut")],
    "in a call": says("All is well", call("look", '{"wh'))[:2],
}


@pytest.mark.parametrize("answer", STOPS.values(), ids=STOPS.keys())
async def test_an_answer_that_stops_before_its_end_fails_the_run_and_is_not_kept(answer: Answer) -> None:
    """Even if its text looks complete, the run fails and the answer is not in the conversation."""
    async with Agent(Script(answer)) as agent:
        result = await agent.run("Is all well?")
    assert (result.status, result.turn_status, result.completed) == ("failed", "error", False)
    assert result.reason
    assert not [message for message in result.messages if isinstance(message, AssistantMessage)]


CUT = {
    "openai.chat": b'data: {"choices":[{"index":0,"delta":{"content":"All is well."}}]}\n\n',
    "anthropic.messages": b'event: message_start\ndata: {"type":"message_start","message":{"content":[]}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"All is well."}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
    "openai.responses": b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","output_index":0,'
    b'"content_index":0,"item_id":"m","delta":"All is well."}\n\n',
    "gemini.generate": b'data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"All is well."}]}}]}\n\n',
    "ollama.chat": b'{"message":{"role":"assistant","content":"All is well."},"done":false}\n',
}


@pytest.mark.parametrize("api", CUT)
async def test_a_stream_of_any_api_that_stops_after_text_fails_the_run(api: str) -> None:
    kind = "application/x-ndjson" if api == "ollama.chat" else "text/event-stream"
    async with Agent(ReplayModel([Recording(body=CUT[api], api=api, content_type=kind)])) as agent:
        result = await agent.run("Is all well?")
    assert (result.turn_status, result.completed) == ("error", False)
    assert not [message for message in result.messages if isinstance(message, AssistantMessage)]
