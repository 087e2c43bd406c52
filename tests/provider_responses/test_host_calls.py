"""`engine.respond` and `engine.watch` with items of the responses API that the host must answer itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from callgate import Engine, Scope, tool
from tests.provider_responses.recorded_bodies import ANSWERS, QUESTIONS, body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS
from tests.provider_responses.shop import AskAboutRefunds, paid, refund, stock

pytestmark = SDK_WARNINGS

_CALL = {"id": "item_1", "call_id": "c_1", "status": "completed"}
_SCREEN = {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="}
_STDOUT = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
WAITING: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "computer": (
        {**_CALL, "type": "computer_call", "action": {"type": "screenshot"}, "pending_safety_checks": []},
        {
            "type": "computer_call_output",
            "call_id": "c_1",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="},
        },
    ),
    "shell": (
        {**_CALL, "type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": 9, "max_output_length": 9}},
        {
            "type": "shell_call_output",
            "call_id": "c_1",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    "local shell": (
        {**_CALL, "type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c_1", "output": "a"},
    ),
    "patch": (
        {**_CALL, "type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a.txt"}},
        {"type": "apply_patch_call_output", "call_id": "c_1", "status": "completed"},
    ),
    "approval": (
        {"id": "mcpr_1", "type": "mcp_approval_request", "arguments": "{}", "name": "pay", "server_label": "shop"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ),
    "a later tool of OpenAI": (
        {**_CALL, "type": "drone_call", "action": {"type": "land"}},
        {"type": "drone_call_output", "call_id": "c_1", "output": "landed"},
    ),
}
STOCK = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c_2",
    "name": "stock",
    "arguments": '{"article": "lamp"}',
    "status": "completed",
}


def response(*output: Mapping[str, Any], response_id: str = "resp_1", **more: Any) -> dict[str, Any]:
    return {**ANSWERS["openai-responses"], "id": response_id, "output": list(output), **more}


@pytest.mark.parametrize(("item", "output"), WAITING.values(), ids=WAITING)
async def test_an_item_that_the_host_must_answer_is_handed_to_it_and_sent_back_with_its_output(
    item: dict[str, Any], output: dict[str, Any]
) -> None:
    """Without its output, the conversation could not continue; without the item, the output would belong to nothing."""
    ask, messages = ASK["openai-responses"], list(QUESTIONS["openai-responses"])
    answers = [response(item), ANSWERS["openai-responses"]]
    with RecordedServer(*[("application/json", body(one)) for one in answers]) as server:
        async with Engine([stock]) as engine:
            reply = await engine.respond(await ask(server.url, messages, engine.schemas("openai-responses")))
            assert (reply.host_calls, reply.done, reply.ended) == ((item,), False, None)
            messages += [*reply.messages, output]
            last = await engine.respond(await ask(server.url, messages, engine.schemas("openai-responses")))
    assert server.requests[1]["input"][1:] == [item, output]
    assert (last.host_calls, last.done) == ((), True)


async def test_a_watched_stream_hands_such_an_item_to_the_host_beside_the_results() -> None:
    item, _ = WAITING["computer"]
    chunks = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 1, "item": STOCK},
        {"type": "response.completed", "response": response(item, STOCK)},
    ]
    async with Engine([stock]) as engine, engine.watch(chunks) as stream:
        reply = await stream.reply()
    assert (reply.host_calls, reply.done) == ((item,), False)
    assert [one["type"] for one in reply.messages] == ["computer_call", "function_call", "function_call_output"]


async def test_an_item_that_openai_answered_or_did_not_complete_is_not_handed_to_the_host() -> None:
    item, output = WAITING["shell"]
    unfinished = {**item, "status": "incomplete"}
    async with Engine([stock]) as engine:
        answered = await engine.respond(response(item, output))
        cut = await engine.respond(response(unfinished, status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert (answered.host_calls, answered.done, answered.messages) == ((), True, [item, output])
    assert (cut.host_calls, cut.finish, cut.messages) == ((), "length", [])


async def test_such_an_item_is_handed_to_the_host_once_no_call_beside_it_waits_for_a_human() -> None:
    """Until then, the whole message is handed in again, and the host would run the item twice."""
    item, _ = WAITING["shell"]
    pay = {**STOCK, "name": "refund", "arguments": '{"order": "A7"}'}
    async with Engine([refund], policies=[AskAboutRefunds()]) as engine:
        first = await engine.respond(response(item, pay))
        assert (first.ended, first.host_calls, first.done) == ("suspended", (), True)
        await engine.approve(first.suspended[0].approval_id)
        second = await engine.respond(response(item, pay))
    assert (second.host_calls, paid) == ((item,), ["A7"])


async def test_after_an_abort_such_an_item_is_neither_handed_to_the_host_nor_appended() -> None:
    item, _ = WAITING["shell"]
    unnamed = {**STOCK, "id": "fc_2", "call_id": "c_3", "name": ""}
    async with Engine([stock]) as engine:
        reply = await engine.respond(response(item, STOCK, unnamed))
    assert (reply.ended, reply.host_calls) == ("aborted", ())
    assert [one["type"] for one in reply.messages] == ["function_call", "function_call_output"]


async def test_after_a_kill_such_an_item_is_not_appended_although_each_call_has_a_result() -> None:
    """Nobody answers it any more, and a request with an item without its output is refused."""
    item, _ = WAITING["computer"]
    started = asyncio.Event()

    @tool
    async def pay(article: str) -> None:
        """Pay."""
        started.set()
        await asyncio.Event().wait()

    async with Engine([pay]) as engine:
        replying = asyncio.create_task(engine.respond(response(item, {**STOCK, "name": "pay"}), Scope(conversation="chat")))
        await started.wait()
        engine.control.kill("chat")
        reply = await replying
    assert (reply.ended, reply.host_calls) == ("aborted", ())
    assert [one["type"] for one in reply.messages] == ["function_call", "function_call_output"]
