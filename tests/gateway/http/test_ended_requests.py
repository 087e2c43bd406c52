"""A request that the gateway ends before its call has ended gets what is on record of the call as its result."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate._journal.open_for_reading import open_reader
from callgate._json import decode
from callgate.event_queries import EventQuery
from tests.gateway.http.gateway_process import GatewayProcess, call, gateway_process, session
from tests.waiting import soon

_OUTCOME = "callgate/outcome"


async def ended_by_stop(gateway: GatewayProcess, client: httpx2.AsyncClient, session_id: str) -> None:
    gateway.stop()


async def ended_by_delete(gateway: GatewayProcess, client: httpx2.AsyncClient, session_id: str) -> None:
    done = await client.delete("/mcp", headers={"Mcp-Session-Id": session_id})
    assert done.status_code < 300


async def called_in_session(client: httpx2.AsyncClient, session_id: str, name: str) -> Any:
    params: dict[str, Any] = {"name": name, "arguments": {"text": "hello"}}
    headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": "2025-11-25"}
    answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}, headers=headers)
    return answer.json()


@pytest.mark.parametrize("end", [ended_by_stop, ended_by_delete])
@pytest.mark.parametrize(
    ("tool", "status", "told"), [("send", "unknown", "may have taken effect"), ("listen", "error", "may be made again")]
)
async def test_a_call_of_a_session_that_ends_is_unknown_unless_it_only_reads(
    tmp_path: Path, end: Any, tool: str, status: str, told: str
) -> None:
    with gateway_process(tmp_path, stop_timeout_s=0.05) as gateway:
        async with gateway.client() as client:
            session_id = await session(client)
            running = asyncio.create_task(called_in_session(client, session_id, tool))
            assert await soon(lambda: gateway.runs() == [tool])
            await end(gateway, client, session_id)
            response = await running
    assert response["id"] == 7
    outcome = response["result"]["_meta"][_OUTCOME]
    assert (outcome["status"], outcome["code"], response["result"]["isError"]) == (status, "request_ended", True)
    assert told in response["result"]["content"][0]["text"]
    assert outcome["uid"].startswith("mcp-")


async def test_a_stateless_call_that_runs_when_the_gateway_stops_is_unknown(tmp_path: Path) -> None:
    with gateway_process(tmp_path, stop_timeout_s=0.05) as gateway:
        async with gateway.client() as client:
            running = asyncio.create_task(call(client, "send", {"text": "hello"}, number=3))
            assert await soon(lambda: gateway.runs() == ["send"])
            gateway.stop()
            response = await running
    assert (response["id"], response["result"]["resultType"]) == (3, "complete")
    assert response["result"]["_meta"][_OUTCOME]["status"] == "unknown"
    with closing(open_reader(tmp_path / "journal.db")) as journal:
        (aborted,) = journal.find(EventQuery(kinds=("call.aborted",)))
    assert decode(aborted.body)["reason"] == (
        "the caller was cancelled: its request was ended, because the access or the session of its client has ended, or the gateway stops"
    )


async def test_a_call_that_waits_for_others_when_the_gateway_stops_has_not_run(tmp_path: Path) -> None:
    with gateway_process(tmp_path, stop_timeout_s=0.05) as gateway:
        async with gateway.client() as client:  # alice may have eight calls at once
            running = [asyncio.create_task(call(client, "send", {"text": str(number)}, number)) for number in range(9)]
            assert await soon(lambda: gateway.runs() == ["send"] * 8)
            gateway.stop()
            responses = await asyncio.gather(*running)
    failures = sorted(response["result"]["_meta"][_OUTCOME]["failure"] for response in responses)
    assert failures == ["not_started"] + ["outcome_unknown"] * 8
    assert gateway.runs() == ["send"] * 8
