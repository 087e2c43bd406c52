"""A watched stream, and the message that a host keeps of it and hands in again after a crash, have the same calls."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from callgate import Engine, Scope, UsageError, tool
from callgate.calls import Answered
from tests.provider_responses.shop import claude, completion, paid, refund, stock

ARGUMENTS = '{"order": "A7"}'
SCOPE = Scope(run="support-17")


def call_item(status: str = "completed", **more: Any) -> dict[str, Any]:
    fields = {"id": "fc_1", "call_id": "call_1", "name": "refund", "arguments": ARGUMENTS, "status": status}
    return {"type": "function_call", **fields, **more}


def response(*items: dict[str, Any], status: str = "completed", response_id: str = "resp_1") -> dict[str, Any]:
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {"id": response_id, "object": "response", "model": "m", "status": status, "incomplete_details": details, "output": list(items)}


def streamed(item: dict[str, Any], final: dict[str, Any], *, added: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the events of a response with one call.

    Args:
        item: The call when it is done.
        final: The response of the last event.
        added: The call when it begins. None: as it is when it is done, without arguments.
    """
    place: dict[str, Any] = {"output_index": 0, "item_id": item["id"]}
    return [
        {"type": "response.created", "response": response(status="in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": {**(added or item), "arguments": "", "status": "in_progress"}},
        {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
        {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{final['status']}", "response": final},
    ]


async def watched_and_kept(events: Sequence[dict[str, Any]], kept: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Watch a stream, and hand in the message that was kept of it, with one engine. Return the statuses of the calls of each."""
    async with Engine([refund]) as engine:
        first = await engine.watch(events, SCOPE).reply()
        again = await engine.respond(kept, SCOPE)
    assert first.message_id == again.message_id
    return statuses(first.outcomes), statuses(again.outcomes)


def statuses(outcomes: Sequence[object]) -> list[str]:
    return [one.result.status if isinstance(one, Answered) else type(one).__name__ for one in outcomes]


@pytest.mark.parametrize("done", ["completed", "in_progress", "incomplete"])
@pytest.mark.parametrize("marked", ["in_progress", "incomplete"])
async def test_a_call_that_the_final_response_marks_as_incomplete_does_not_run(done: str, marked: str) -> None:
    final = response(call_item(marked), status="incomplete")
    assert await watched_and_kept(streamed(call_item(done), final), final) == (["error"], ["error"])
    assert paid == []


async def test_a_call_that_is_done_as_incomplete_does_not_run_without_a_word_of_the_final_response() -> None:
    final = response(status="incomplete")
    del final["output"]
    async with Engine([refund]) as engine:
        reply = await engine.watch(streamed(call_item("incomplete"), final)).reply()
    assert (statuses(reply.outcomes), paid) == (["error"], [])


@pytest.mark.parametrize("done", ["in_progress", "incomplete"])
async def test_a_call_that_the_final_response_marks_as_complete_runs_once(done: str) -> None:
    final = response(call_item())
    assert await watched_and_kept(streamed(call_item(done), final), final) == (["ok"], ["ok"])
    assert paid == ["A7"]


async def test_a_call_that_an_incomplete_response_lacks_does_not_run() -> None:
    final = response(status="incomplete")
    assert await watched_and_kept(streamed(call_item(), final), final) == (["error"], [])
    assert paid == []


async def test_a_call_that_a_complete_response_has_not_beside_others_does_not_run() -> None:
    final = response(call_item(id="fc_2", call_id="call_2", name="stock", arguments='{"article": "lamp"}'))
    async with Engine([refund, stock]) as engine:
        reply = await engine.watch(streamed(call_item(), final)).reply()
    assert (statuses(reply.outcomes), paid) == (["error", "ok"], [])


async def test_a_complete_response_that_repeats_no_items_runs_the_streamed_ones() -> None:
    async with Engine([refund]) as engine:
        reply = await engine.watch(streamed(call_item(), response())).reply()
    assert (statuses(reply.outcomes), paid) == (["ok"], ["A7"])


async def test_the_arguments_of_the_final_response_count() -> None:
    final = response(call_item(arguments='{"order": "B8"}'))
    assert await watched_and_kept(streamed(call_item(), final), final) == (["ok"], ["ok"])
    assert paid == ["B8"]


@pytest.mark.parametrize("changed_at", ["the end of the item", "the final response"])
async def test_a_call_whose_id_changes_within_the_stream_is_one_call(changed_at: str) -> None:
    renamed = call_item(call_id="call_2")
    final = response(renamed)
    events = streamed(renamed if changed_at == "the end of the item" else call_item(), final, added=call_item())
    assert await watched_and_kept(events, final) == (["ok"], ["ok"])
    assert paid == ["A7"]


@pytest.mark.parametrize("first", [1, 2, 4, 5])
async def test_a_stream_that_is_resumed_without_its_first_events_has_the_calls_of_its_response(first: int) -> None:
    final = response(call_item())
    assert await watched_and_kept(streamed(call_item(), final)[first:], final) == (["ok"], ["ok"])
    assert paid == ["A7"]


async def test_equal_calls_of_two_resumed_streams_are_two_calls() -> None:
    async with Engine([refund]) as engine:
        for response_id in ("resp_1", "resp_2"):
            await engine.watch(streamed(call_item(), response(call_item(), response_id=response_id))[1:], SCOPE).reply()
    assert paid == ["A7", "A7"]


async def test_the_id_of_the_final_response_counts_and_one_warning_says_that_it_differs(caplog: pytest.LogCaptureFixture) -> None:
    final = response(call_item(), response_id="resp_2")
    assert await watched_and_kept(streamed(call_item(), final), final) == (["ok"], ["ok"])
    assert paid == ["A7"]
    said = [record.getMessage() for record in caplog.records if "message id" in record.getMessage()]
    assert len(said) == 1
    assert "began with the message id 'resp_1' and ended with 'resp_2'" in said[0]


async def test_an_id_that_the_host_gives_takes_precedence_over_those_of_the_stream() -> None:
    final = response(call_item(), response_id="resp_2")
    async with Engine([refund]) as engine:
        reply = await engine.watch(streamed(call_item(), final), Scope(message_id="mine")).reply()
    assert reply.message_id == "mine"


async def test_a_read_that_began_before_the_id_was_known_has_one_result() -> None:
    counted: list[str] = []

    @tool(effect="none")
    def count(order: str) -> str:
        """Count."""
        counted.append(order)
        return "3"

    item = call_item(name="count")
    async with Engine([count]) as engine:
        reply = await engine.watch(streamed(item, response(item))[1:], SCOPE).reply()
    assert [one["output"] for one in reply.results] == ["3"]
    assert set(counted) == {"A7"}


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_the_calls_of_a_response_that_has_not_ended_do_not_run_when_its_stream_ends(status: str) -> None:
    events = streamed(call_item(), response(call_item()))
    events[-1]["response"]["status"] = status
    interaction = [
        {"event_type": "interaction.start", "interaction": {"id": "int_1"}},
        {"event_type": "step.start", "index": 0, "step": {"type": "function_call", "id": "c", "name": "refund", "arguments": {}}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "arguments_delta", "arguments": ARGUMENTS}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.complete", "interaction": {"id": "int_1", "status": status}},
    ]
    async with Engine([refund]) as engine:
        for chunks in (events, interaction):
            reply = await engine.watch(chunks).reply()
            assert (reply.ended, reply.messages) == ("aborted", [])
    assert paid == []


async def test_a_warning_names_an_ending_that_does_not_prove_the_calls_complete(caplog: pytest.LogCaptureFixture) -> None:
    kept = {**response(call_item()), "status": "expired"}
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine([refund]) as engine:
            await engine.respond(kept)
            await engine.respond(completion(("refund", ARGUMENTS), finish="tired"))
    said = [record.getMessage() for record in caplog.records if "does not say whether it is complete" in record.getMessage()]
    assert ["'expired'" in said[0], "'tired'" in said[1], len(said)] == [True, True, 2]


async def test_the_last_call_of_a_claude_message_that_met_its_limit_runs_neither_streamed_nor_kept() -> None:
    kept = claude(("refund", {"order": "A7"}), reason="max_tokens")
    block = {"type": "tool_use", "id": "toolu_0", "name": "refund", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**kept, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ARGUMENTS}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    assert await watched_and_kept(events, kept) == (["error"], ["error"])
    assert paid == []


async def test_the_last_call_of_a_converse_message_that_met_its_limit_runs_neither_streamed_nor_whole() -> None:
    call = {"toolUseId": "t_0", "name": "refund"}
    whole = {"output": {"message": {"role": "assistant", "content": [{"toolUse": {**call, "input": {"order": "A7"}}}]}}}
    events: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": call}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": ARGUMENTS}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "max_tokens"}},
    ]
    assert await watched_and_kept(events, {**whole, "stopReason": "max_tokens"}) == (["error"], ["error"])
    assert paid == []


async def test_the_last_call_of_an_interaction_that_met_its_limit_runs_neither_streamed_nor_kept() -> None:
    step = {"type": "function_call", "id": "c", "name": "refund", "arguments": {"order": "A7"}}
    kept = {"object": "interaction", "id": "int_1", "status": "incomplete", "steps": [step]}
    events: list[dict[str, Any]] = [
        {"event_type": "interaction.start", "interaction": {"id": "int_1"}},
        {"event_type": "step.start", "index": 0, "step": {**step, "arguments": {}}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "arguments_delta", "arguments": ARGUMENTS}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.complete", "interaction": kept},
    ]
    assert await watched_and_kept(events, kept) == (["error"], ["error"])
    assert paid == []


async def test_an_event_of_a_stream_is_refused_with_the_response_to_give() -> None:
    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match=r"an event of a stream.*`event\.response`"):
            await engine.respond(streamed(call_item(), response(call_item()))[-1])


async def test_a_raw_response_is_refused_with_what_to_call() -> None:
    class RawResponse:
        headers: dict[str, str] = {}

        def parse(self) -> AsyncIterator[object]:
            raise NotImplementedError

    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match=r"a raw response\. Give it response\.parse\(\)"):
            engine.watch(RawResponse())  # type: ignore[arg-type]


async def test_the_last_call_of_a_cohere_message_that_met_its_limit_without_arguments_runs_neither_streamed_nor_whole() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "close_day", "arguments": ""}}
    whole_call = {**call, "function": {"name": "close_day", "arguments": "{}"}}
    whole = {"id": "c-1", "finish_reason": "MAX_TOKENS", "message": {"role": "assistant", "tool_calls": [whole_call]}}
    events: list[dict[str, Any]] = [
        {"type": "message-start", "id": "c-1", "delta": {"message": {"role": "assistant"}}},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": "{"}}}}},
        {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": "}"}}}}},
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "MAX_TOKENS"}},
    ]

    @tool
    def close_day() -> str:
        """Close the day."""
        raise AssertionError("the message was cut")

    async with Engine([close_day]) as engine:
        watched = await engine.watch(events, SCOPE).reply()
        kept = await engine.respond(whole, SCOPE)
    assert (statuses(watched.outcomes), statuses(kept.outcomes)) == (["error"], ["error"])
    assert watched.messages == kept.messages
