"""Calls that take long go on as tasks of clients that know the tasks extension."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from callgate import Engine, tool
from callgate.gateway import Gateway, GatewayLimits, Principal
from tests.cli.shell import shell
from tests.gateway import task_gateway
from tests.gateway.raw_client import Era, RawClient, raw_client
from tests.waiting import until

pytestmark = pytest.mark.process

TASKS = "io.modelcontextprotocol/tasks"
DECLARED: Mapping[str, Any] = {"extensions": {TASKS: {}}}
_ASKING = str(Path(__file__).with_name("asking_server.py"))
ENDS = ("completed", "failed", "cancelled")
Message = dict[str, Any]


def gateway(
    folder: Path, capabilities: Mapping[str, Any] = DECLARED, era: Era = "stateless", **settings: Any
) -> AbstractAsyncContextManager[RawClient]:
    return raw_client(partial(task_gateway.serve, {"folder": str(folder), **settings}), era, capabilities)


def gateway_process(folder: Path, capabilities: Mapping[str, Any] = DECLARED, **settings: Any) -> AbstractAsyncContextManager[RawClient]:
    """Return a client of a gateway that can be killed."""
    command = [sys.executable, "-m", "tests.gateway.task_gateway", json.dumps({"folder": str(folder), **settings})]
    return raw_client(command, "stateless", capabilities)


async def result(client: RawClient, method: str, **params: Any) -> Message:
    response = await client.request(method, params)
    assert "result" in response, response
    found: Message = response["result"]
    return found


async def begun(client: RawClient, tool_name: str, **arguments: Any) -> Message:
    """Call a tool; return the task."""
    task = await result(client, "tools/call", name=tool_name, arguments=arguments)
    assert task["resultType"] == "task", task
    return task


async def settled(client: RawClient, task: Message, *states: str) -> Message:
    """Ask for a task until it has one of these states; return it."""
    while True:
        found = await result(client, "tasks/get", taskId=task["taskId"])
        assert found["resultType"] == "complete"
        if found["status"] in (states or ENDS):
            return found
        await asyncio.sleep(0.01)


async def test_a_call_that_takes_long_becomes_a_task_whose_result_is_that_of_the_call(tmp_path: Path) -> None:
    async with gateway(tmp_path) as client:
        discovered = await result(client, "server/discover")
        assert discovered["capabilities"]["extensions"] == {TASKS: {}}
        task = await begun(client, "look", name="a")
        assert {key for key in task if key != "_meta"} == {
            *("resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs")
        }
        assert (task["status"], task["ttlMs"]) == ("working", 3_600_000)
        assert (await result(client, "tasks/get", taskId=task["taskId"]))["status"] == "working"
        (tmp_path / "a.go").touch()
        done = await settled(client, task)
        (tmp_path / "b.go").touch()
        direct = await result(client, "tools/call", name="look", arguments={"name": "b"})
    assert done["status"] == "completed"
    assert done["result"]["structuredContent"] == {"seen": "a"}
    assert done["result"].keys() == direct.keys()
    assert direct["resultType"] == "complete"


@pytest.mark.parametrize(("era", "capabilities"), [("stateless", {}), ("handshake", DECLARED)])
async def test_a_client_that_does_not_know_tasks_waits_for_the_result(tmp_path: Path, era: Era, capabilities: Mapping[str, Any]) -> None:
    async with gateway(tmp_path, capabilities, era) as client:
        _, called = client.begin("tools/call", {"name": "look", "arguments": {"name": "a"}})
        await until((tmp_path / "a.began").exists)
        assert "tools" in await result(client, "tools/list")
        (tmp_path / "a.go").touch()
        assert (await called)["result"]["structuredContent"] == {"seen": "a"}


async def test_tasks_can_be_turned_off(tmp_path: Path) -> None:
    async with gateway(tmp_path, tasks=0) as client:
        assert "extensions" not in (await result(client, "server/discover"))["capabilities"]
        _, called = client.begin("tools/call", {"name": "look", "arguments": {"name": "a"}})
        await until((tmp_path / "a.began").exists)
        assert (await client.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601
        (tmp_path / "a.go").touch()
        assert (await called)["result"]["resultType"] == "complete"


async def test_a_cancelled_task_ends_its_call(tmp_path: Path) -> None:
    server = [sys.executable, _ASKING, "stateless", str(tmp_path / "log")]
    async with gateway(tmp_path, servers=[server]) as client:
        task = await begun(client, "wait")
        for _ in range(2):  # also when it has ended
            acknowledged = await result(client, "tasks/cancel", taskId=task["taskId"])
            assert {key for key in acknowledged if key != "_meta"} == {"resultType"}
            assert (await settled(client, task))["status"] == "cancelled"
        await until(lambda: "cancelled" in (tmp_path / "log").read_text(encoding="utf-8"))


async def test_a_failure_of_the_tool_is_a_result_and_an_error_of_the_protocol_is_not(tmp_path: Path) -> None:
    server = [sys.executable, _ASKING, "stateless", str(tmp_path / "log")]
    async with gateway(tmp_path, servers=[server]) as client:
        refused, failed = await begun(client, "refuse", name="a"), await begun(client, "fail_later")
        for name in ("a.go", "log.go"):
            (tmp_path / name).touch()
        told, error = await settled(client, refused), await settled(client, failed)
    assert told["status"] == "completed"
    assert told["result"]["isError"] is True
    assert "the shop is closed" in told["result"]["content"][0]["text"]
    assert error["status"] == "failed"
    assert error["error"] == {"code": -32050, "message": "out of paper", "data": {"tray": 2}}
    assert "result" not in error


@pytest.mark.parametrize("upstream", get_args(Era))
async def test_questions_of_a_server_during_a_task_have_names_that_are_never_used_again(tmp_path: Path, upstream: Era) -> None:
    """The server of the stateless era asks both questions under one name."""
    server = [sys.executable, _ASKING, upstream, str(tmp_path / "log")]
    async with gateway(tmp_path, {**DECLARED, "elicitation": {"form": {}}}, servers=[server]) as client:
        task = await begun(client, "ask_twice_later")
        (tmp_path / "log.go").touch()
        seen: list[str] = []
        for number, name in enumerate(("Ada", "Grace"), start=1):
            asks = await settled(client, task, "input_required")
            while set(asks["inputRequests"]) <= set(seen):
                asks = await settled(client, task, "input_required")
            ((key, question),) = asks["inputRequests"].items()
            assert question["params"]["message"] == f"Your name? ({number})"
            for odd in ({"other": {"action": "decline"}}, {}):
                await result(client, "tasks/update", taskId=task["taskId"], inputResponses=odd)
            assert (await settled(client, task, "input_required"))["inputRequests"].keys() == {key}
            answer = {key: {"action": "accept", "content": {"name": name}}}
            await result(client, "tasks/update", taskId=task["taskId"], inputResponses=answer)
            seen.append(key)
        done = await settled(client, task)
        await result(client, "tasks/update", taskId=task["taskId"], inputResponses=answer)
    assert len(set(seen)) == 2
    assert [one["content"]["name"] for one in json.loads(done["result"]["content"][0]["text"])] == ["Ada", "Grace"]


async def test_a_call_that_an_operator_has_to_approve_waits_as_a_task(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with gateway(tmp_path, journal=str(journal)) as client:
        task = await begun(client, "order", article="tea")
        waiting = await result(client, "tasks/get", taskId=task["taskId"])
        assert waiting["status"] == "working"
        assert "A human has to approve the call first" in waiting["statusMessage"]
        approval = waiting["statusMessage"].split("approval ")[1].split(")")[0]
        done = await asyncio.to_thread(shell, tmp_path, "approve", approval, "--journal", str(journal))
        assert done.code == 0, done.err
        ended = await settled(client, task)
    assert ended["result"]["content"][0]["text"] == "ordered tea"


async def test_the_user_of_the_client_is_asked_before_there_is_a_task(tmp_path: Path) -> None:
    async with gateway(tmp_path, {**DECLARED, "elicitation": {"form": {}}}) as client:
        asked = await result(client, "tools/call", name="order", arguments={"article": "tea"})
        assert asked["resultType"] == "input_required"
        answers = {"approval": {"action": "accept", "content": {"approve": True}}}
        more = {"inputResponses": answers, "requestState": asked["requestState"]}
        ended = await result(client, "tools/call", name="order", arguments={"article": "tea"}, **more)
    assert ended["content"][0]["text"] == "ordered tea"


@pytest.mark.parametrize("after_ms", [1, 2, 3, 4, 6])
async def test_a_question_that_is_asked_when_the_call_becomes_a_task_is_not_its_result(tmp_path: Path, after_ms: int) -> None:
    """The time in which calls get their question depends on the machine, so the times of several tests are around it."""
    settings: Mapping[str, Any] = {"journal": str(tmp_path / "journal.db"), "after_s": after_ms / 1_000}
    async with gateway(tmp_path, {**DECLARED, "elicitation": {"form": {}}}, **settings) as client:

        async def status_of_call(article: str) -> str:
            asked = await result(client, "tools/call", name="order", arguments={"article": article})
            if asked["resultType"] == "task":
                asked = await settled(client, asked, "input_required", *ENDS)
            return str(asked.get("status", asked["resultType"]))

        for first in range(0, 48, 8):
            found = await asyncio.gather(*(status_of_call(f"tea {number}") for number in range(first, first + 8)))
            assert set(found) == {"input_required"}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"])
async def test_a_client_that_has_not_declared_the_extension_is_told_so(tmp_path: Path, method: str) -> None:
    async with gateway(tmp_path, {}) as client:
        error = (await client.request(method, {"taskId": "x", "notifications": {"taskIds": ["x"]}}))["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_id_of_no_task_is_refused(tmp_path: Path, method: str) -> None:
    async with gateway(tmp_path) as client:
        task = await begun(client, "look", name="a")
        odd_ids: list[Any] = ["x", "", None, 5, {}, [task["taskId"]], task["taskId"] + "A", task["taskId"][:-6] + "AAAA=="]
        for odd in odd_ids:
            error = (await client.request(method, {"taskId": odd}))["error"]
            assert (error["code"], "There is no such task" in error["message"]) == (-32602, True)
        error = (await client.request("tasks/update", {"taskId": task["taskId"], "inputResponses": [1]}))["error"]
        assert error["code"] == -32602
        (tmp_path / "a.go").touch()


async def test_a_task_is_gone_when_its_time_is_over_and_its_call_is_cancelled(tmp_path: Path) -> None:
    server = [sys.executable, _ASKING, "stateless", str(tmp_path / "log")]
    async with gateway(tmp_path, servers=[server], ttl_s=0.5) as client:
        task = await begun(client, "wait")
        assert task["ttlMs"] == 500
        while "error" not in (told := await client.request("tasks/get", {"taskId": task["taskId"]})):
            await asyncio.sleep(0.01)
        assert told["error"]["code"] == -32602
        await until(lambda: "cancelled" in (tmp_path / "log").read_text(encoding="utf-8"))


async def test_a_client_that_listens_is_told_each_state_of_its_tasks(tmp_path: Path) -> None:
    async with gateway(tmp_path) as client:
        task = await begun(client, "look", name="a")
        client.begin("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"], "x"]}})
        acknowledged = await client.next_message()
        assert acknowledged["params"]["notifications"] == {"taskIds": [task["taskId"]]}
        working = await client.next_message()
        (tmp_path / "a.go").touch()
        done = await client.next_message()
    assert [one["method"] for one in (working, done)] == ["notifications/tasks"] * 2
    assert (working["params"]["status"], working["params"]["taskId"]) == ("working", task["taskId"])
    assert done["params"]["result"]["structuredContent"] == {"seen": "a"}


async def test_a_task_continues_after_its_gateway_was_killed_and_no_effect_happens_twice(tmp_path: Path) -> None:
    """What only reads is run again; a payment that may have happened is unknown; a stored result is that result."""
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        looked, paid, done = [await begun(client, tool, name=name) for tool, name in (("look", "a"), ("pay", "b"), ("pay", "done"))]
        (tmp_path / "done.go").touch()
        await settled(client, done)
        await client.kill()
    (tmp_path / "a.go").touch()
    async with gateway_process(tmp_path, journal=journal) as client:
        assert (await settled(client, looked))["result"]["structuredContent"] == {"seen": "a"}
        unknown = (await settled(client, paid))["result"]
        stored = (await settled(client, done))["result"]
        cancelled = await begun(client, "look", name="c")
        await client.kill()
    async with gateway(tmp_path, journal=journal) as client:
        (tmp_path / "c.began").unlink()
        await result(client, "tasks/cancel", taskId=cancelled["taskId"])
        assert (await settled(client, cancelled))["status"] == "cancelled"
    assert not (tmp_path / "c.began").exists()
    assert unknown["isError"] is True
    assert unknown["_meta"]["callgate/outcome"]["status"] == "unknown"
    assert stored["content"][0]["text"] == "paid done"
    assert sorted((tmp_path / "paid").read_text(encoding="utf-8").split()) == ["b", "done"]


async def test_another_gateway_on_the_journal_does_not_end_a_task_that_runs(tmp_path: Path) -> None:
    """It says that the task works, refuses to cancel or answer it, and has the result as soon as the call has ended."""
    journal = str(tmp_path / "journal.db")
    async with gateway(tmp_path, journal=journal) as one, gateway(tmp_path, journal=journal) as other:
        task = await begun(one, "pay", name="a")
        for _ in range(3):
            assert (await result(other, "tasks/get", taskId=task["taskId"]))["status"] == "working"
        for method in ("tasks/update", "tasks/cancel"):
            error = (await other.request(method, {"taskId": task["taskId"], "inputResponses": {}}))["error"]
            assert "Another gateway works on this task" in error["message"]
        assert (await result(one, "tasks/get", taskId=task["taskId"]))["status"] == "working"
        (tmp_path / "a.go").touch()
        for client in (one, other):
            assert (await settled(client, task))["result"]["content"][0]["text"] == "paid a"
    assert (tmp_path / "paid").read_text(encoding="utf-8").split() == ["a"]


async def test_a_call_whose_task_was_cancelled_while_it_waited_for_approval_never_runs(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with gateway_process(tmp_path, journal=str(journal)) as client:
        task = await begun(client, "order", article="tea")
        while "statusMessage" not in (waiting := await result(client, "tasks/get", taskId=task["taskId"])):
            assert waiting["status"] == "working"
        told = waiting["statusMessage"]
        await result(client, "tasks/cancel", taskId=task["taskId"])
        assert (await settled(client, task))["status"] == "cancelled"
        approval = told.split("approval ")[1].split(")")[0]
        assert (await asyncio.to_thread(shell, tmp_path, "approve", approval, "--journal", str(journal))).code != 0
        await client.kill()
    async with gateway_process(tmp_path, journal=str(journal)) as client:
        ended = await settled(client, task)
    assert "ordered" not in json.dumps(ended)


class Nowhere:
    """Takes what a client would be sent."""

    def send(self, message: Message) -> bool:
        return True


async def test_a_task_belongs_to_its_principal() -> None:
    go = asyncio.Event()

    @tool(effect="none")
    async def look() -> str:
        """Wait, and look."""
        await go.wait()
        return "seen"

    async with Gateway(Engine([look]), limits=GatewayLimits(task_after_s=0.01)) as gateway:
        ada, bob = (gateway.stateless(Principal(name=name)) for name in ("ada", "bob"))
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": DECLARED}
        call = {"id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}, "_meta": meta}}
        task = await ada.request(call, Nowhere())
        assert task is not None
        asking = {"id": 2, "method": "tasks/get", "params": {"taskId": task["result"]["taskId"], "_meta": meta}}
        refused, told = await bob.request(asking, Nowhere()), await ada.request(asking, Nowhere())
        go.set()
    assert refused is not None
    assert told is not None
    assert refused["error"]["code"] == -32602
    assert told["result"]["status"] == "working"


_TOOLS = '''
import asyncio
from pathlib import Path
from callgate import tool

@tool(effect="none")
async def look() -> str:
    """Wait, and look."""
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "seen"
'''


async def test_a_task_of_the_command_is_known_after_a_restart_by_the_key_beside_its_journal(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(_TOOLS, encoding="utf-8")
    config = tmp_path / "gate.toml"
    config.write_text('tools = ["own.py"]\n[tasks]\nafter_s = 0.1\n', encoding="utf-8")
    command = ["env", "-C", str(tmp_path), sys.executable, "-m", "callgate.cli", "serve", "--config", str(config)]
    async with raw_client(command, "stateless", DECLARED) as client:
        task = await begun(client, "look")
        await client.kill()
    (tmp_path / "go").touch()
    async with raw_client(command, "stateless", DECLARED) as client:
        assert (await settled(client, task))["result"]["content"][0]["text"] == "seen"
    key = tmp_path / ".callgate" / "gateway.key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.write_bytes(b"short")
    done = await asyncio.to_thread(shell, tmp_path, "serve", "--http", "127.0.0.1:0")
    assert done.code == 2
    assert "gateway.key is shorter than 32 bytes" in done.err
