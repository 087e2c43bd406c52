"""`tasks/get` of a task that has ended returns the same before and after a restart of the gateway."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from tests.gateway.test_tasks import begun, gateway, gateway_process, result, settled

pytestmark = pytest.mark.process


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_cancelled_task_says_whether_its_call_may_have_taken_effect(tmp_path: Path, restarted: bool) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        tasks = [await begun(client, "pay", name="a"), await begun(client, "look", name="b"), await begun(client, "order", article="tea")]
        for task in tasks:
            await result(client, "tasks/cancel", taskId=task["taskId"])
        told = [await settled(client, task) for task in tasks]
        await client.kill()
    if restarted:
        async with gateway(tmp_path, journal=journal) as client:
            told = [await result(client, "tasks/get", taskId=task["taskId"]) for task in tasks]
    paid, looked, ordered = told
    assert {one["status"] for one in told} == {"cancelled"}
    assert "It may have taken effect" in paid["statusMessage"]
    assert f"callgate settle {paid['_meta']['callgate/outcome']['uid']}" in paid["statusMessage"]
    assert paid["_meta"]["callgate/outcome"]["status"] == "unknown"
    assert "look only reads" in looked["statusMessage"]
    assert ordered["statusMessage"] == "The call has not run."


async def test_a_client_that_listens_is_told_with_the_cancellation_whether_the_call_may_have_taken_effect(tmp_path: Path) -> None:
    async with gateway(tmp_path) as client:
        task = await begun(client, "pay", name="a")
        client.begin("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"]]}})
        assert (await client.next_message())["method"] == "notifications/subscriptions/acknowledged"
        await result(client, "tasks/cancel", taskId=task["taskId"])
        while (told := (await client.next_message())["params"])["status"] != "cancelled":
            assert told["status"] == "working"
    assert "It may have taken effect" in told["statusMessage"]


async def test_a_task_that_was_told_as_ended_does_not_work_again_after_a_restart(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        task = await begun(client, "pay", name="a")
        (tmp_path / "a.go").touch()
        before = await settled(client, task)
        await client.kill()
    async with gateway(tmp_path, journal=journal) as client:
        after = await asyncio.gather(*(result(client, "tasks/get", taskId=task["taskId"]) for _ in range(3)))
    assert [one["status"] for one in after] == ["completed"] * 3
    ended = {datetime.fromisoformat(one["lastUpdatedAt"]) for one in after}
    assert max(ended) <= datetime.fromisoformat(before["lastUpdatedAt"])
