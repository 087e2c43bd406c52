"""Tasks that their gateway no longer has in memory are told by the record of their calls."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import command
from tests.gateway.odd_server import ERRORS, RESULTS
from tests.gateway.raw_client import RawClient, raw_client
from tests.gateway.test_tasks import DECLARED, ENDS, begun, gateway, gateway_process, result, settled
from tests.waiting import until

pytestmark = pytest.mark.process

Message = dict[str, Any]
_ODD = str(Path(__file__).with_name("odd_server.py"))
LARGE = "x" * 100_000


@pytest.mark.parametrize("upstream", ["handshake", "stateless"])
async def test_a_recorded_result_is_that_of_the_server(tmp_path: Path, upstream: str) -> None:
    """With the order of keys in its values; only the keys of the result and its items have their usual order, without `isError: false`."""
    settings: Mapping[str, Any] = {
        "journal": str(tmp_path / "journal.db"),
        "servers": [[sys.executable, _ODD, upstream, str(tmp_path)]],
        "after_s": 0.000_001,
    }
    async with gateway_process(tmp_path, **settings) as client:
        tasks = {name: await begun(client, "odd", a=name) for name in (*RESULTS, *ERRORS)}
        (tmp_path / "go").touch()
        before = {name: await settled(client, task) for name, task in tasks.items()}
        await client.kill()
    async with gateway(tmp_path, **settings) as client:
        after = {name: await settled(client, task) for name, task in tasks.items()}
    assert [name for name in RESULTS if _compared(after[name]) != _compared(before[name])] == []
    assert [name for name in ERRORS if json.dumps(after[name]["error"]) != json.dumps(before[name]["error"])] == []


def _compared(task: Message) -> Any:
    found = dict(task["result"])
    if found.get("isError") is False:
        del found["isError"]
    structured = json.dumps(found.get("structuredContent")), json.dumps(found.get("vendorField")), json.dumps(found.get("vendor"))
    return task["status"], found, structured


async def test_a_result_is_told_although_its_tool_is_gone(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        looked, paid = await begun(client, "look", name="a"), await begun(client, "pay", name="b")
        (tmp_path / "a.go").touch()
        await settled(client, looked)
        await client.kill()
    async with gateway(tmp_path, journal=journal, without=["look", "pay"]) as client:
        told, open_ = await settled(client, looked), await settled(client, paid)
    assert (told["status"], told["result"]["structuredContent"]) == ("completed", {"seen": "a"})
    assert (open_["status"], "no tool pay any more" in open_["error"]["message"]) == ("failed", True)
    assert "It may have taken effect" in open_["error"]["message"]


async def test_a_call_that_was_not_started_and_whose_tool_is_gone_has_not_run(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        task = await begun(client, "order", article="tea")
        await client.kill()
    async with gateway(tmp_path, journal=journal, without=["order"]) as client:
        told = await settled(client, task)
    assert told["status"] == "failed"
    assert "no tool order any more" in told["error"]["message"]
    assert told["error"]["message"].endswith("It has not run.")


async def test_a_task_continues_when_the_server_of_its_tool_has_started_after_a_restart(tmp_path: Path) -> None:
    up, program = tmp_path / "up", str(Path(__file__).with_name("content_server.py"))
    starts = f"import os, runpy, sys; os.path.exists({str(up)!r}) or sys.exit(3); runpy.run_path({program!r})"
    words = json.dumps([sys.executable, "-c", starts, "shop"])
    (tmp_path / "rules.toml").write_text('[[rule]]\nid = "ask"\nverdict = "ask"\ntool = "*"\nreason = "Look?"\n', encoding="utf-8")
    config = tmp_path / "gate.toml"
    config.write_text(f'rules = "rules.toml"\n[tasks]\nafter_s = 0.001\n[servers.shop]\ncommand = {words}\n', encoding="utf-8")
    served = list(command(("serve", "--config", str(config))))
    up.touch()
    async with raw_client(served, "stateless", DECLARED) as client:
        task = await begun(client, "shop_look")
        await client.kill()
    up.unlink()
    async with raw_client(served, "stateless", DECLARED) as client:
        await _works(client, task, "The MCP server 'shop' cannot be started")
        up.touch()
        await _works(client, task, "A human has to approve the call first")


async def test_a_task_whose_server_has_its_tool_no_longer_fails_although_another_server_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\nid = "ask"\nverdict = "ask"\ntool = "*"\nreason = "Look?"\n', encoding="utf-8")
    config = tmp_path / "gate.toml"
    served = list(command(("serve", "--config", str(config))))
    _write_config(config, "shop")
    async with raw_client(served, "stateless", DECLARED) as client:
        task = await begun(client, "shop_look")
        await client.kill()
    _write_config(config, "other")
    with config.open("a", encoding="utf-8") as file:
        file.write('[servers.dead]\ncommand = "no-such-program-here"\n')
    async with raw_client(served, "stateless", DECLARED) as client:
        told = await settled(client, task, *ENDS)
    assert (told["status"], "no tool shop_look any more" in told["error"]["message"]) == ("failed", True)
    assert told["error"]["message"].endswith("It has not run.")


def _write_config(config: Path, kind: str) -> None:
    """Write the configuration of a gateway with a server `shop`, whose tools have names of this kind."""
    words = json.dumps([sys.executable, str(Path(__file__).with_name("content_server.py")), kind])
    config.write_text(f'rules = "rules.toml"\n[tasks]\nafter_s = 0.001\n[servers.shop]\ncommand = {words}\n', encoding="utf-8")


async def _works(client: RawClient, task: Message, message: str) -> None:
    """Ask for a task that has not ended until its status begins with this message."""
    told = ""
    while not told.startswith(message):
        found = await settled(client, task, "working", *ENDS)
        assert found["status"] == "working", found
        told = found.get("statusMessage", "")
        await asyncio.sleep(0.01)


async def test_a_task_that_was_told_as_unknown_is_not_told_as_running_at_another_gateway(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        paid = await begun(client, "pay", name="a")
        await client.kill()
    async with gateway(tmp_path, journal=journal) as client:
        told = await settled(client, paid)
        assert told["result"]["_meta"]["callgate/outcome"]["status"] == "unknown"
    async with gateway(tmp_path, journal=journal) as client:
        assert (await result(client, "tasks/get", taskId=paid["taskId"]))["status"] == "completed"


async def test_large_arguments_are_kept_so_that_a_task_continues_after_a_restart(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        done, looked = await begun(client, "look", name="a", more=LARGE), await begun(client, "look", name="b", more=LARGE)
        paid = await begun(client, "pay", name="c", more=LARGE)
        (tmp_path / "a.go").touch()
        await settled(client, done)
        await client.kill()
    (tmp_path / "b.go").touch()
    async with gateway(tmp_path, journal=journal) as client:
        told = [(await settled(client, task))["result"] for task in (done, looked, paid)]
    assert [one.get("structuredContent") for one in told[:2]] == [{"seen": "a", "more": LARGE}, {"seen": "b", "more": LARGE}]
    assert told[2]["_meta"]["callgate/outcome"]["status"] == "unknown"
    assert (tmp_path / "paid").read_text(encoding="utf-8").split() == ["c"]


async def test_a_call_with_a_secret_in_its_arguments_is_not_submitted_again_with_others(tmp_path: Path) -> None:
    """The record has not the secret, so that the repeated call would be another one."""
    settings: Mapping[str, Any] = {"journal": str(tmp_path / "journal.db"), "secret": "s3cr3t-value"}
    async with gateway_process(tmp_path, **settings) as client:
        done, small, large = [
            await begun(client, "pay", name=name, more=more) for name, more in (("a", ""), ("b", ""), ("c", LARGE + "s3cr3t-value"))
        ]
        hidden = await begun(client, "pay", name="d", more="s3cr3t-value")
        (tmp_path / "a.go").touch()
        await settled(client, done)
        await client.kill()
    async with gateway(tmp_path, **settings) as client:
        assert (await settled(client, done))["result"]["content"][0]["text"] == "paid a"
        assert (await settled(client, small))["result"]["_meta"]["callgate/outcome"]["status"] == "unknown"
        for task in (large, hidden):
            told = await settled(client, task)
            assert told["status"] == "failed"
            assert "not on record as a whole" in told["error"]["message"]
    assert sorted((tmp_path / "paid").read_text(encoding="utf-8").split()) == ["a", "b", "c", "d"]
    assert _files_with(b"s3cr3t-value", tmp_path) == []


def _files_with(secret: bytes, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and secret in file.read_bytes()]


@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_a_task_that_was_cancelled_stays_cancelled_after_a_restart_and_its_call_does_not_run(tmp_path: Path, tool: str) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        task = await begun(client, tool, name="a")
        await until((tmp_path / "a.began").exists)
        await result(client, "tasks/cancel", taskId=task["taskId"])
        assert (await settled(client, task))["status"] == "cancelled"
        await client.kill()
    (tmp_path / "a.began").unlink()
    async with gateway(tmp_path, journal=journal) as client:
        assert (await settled(client, task))["status"] == "cancelled"
    assert not (tmp_path / "a.began").exists()


async def test_a_task_that_was_cancelled_while_it_waited_for_approval_stays_cancelled_after_a_restart(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway_process(tmp_path, journal=journal) as client:
        task = await begun(client, "order", article="tea")
        await result(client, "tasks/cancel", taskId=task["taskId"])
        await client.kill()
    async with gateway(tmp_path, journal=journal) as client:
        assert (await settled(client, task))["status"] == "cancelled"


async def test_a_task_that_began_while_the_approval_of_its_call_was_recorded_is_found_after_a_restart(tmp_path: Path) -> None:
    settings: Mapping[str, Any] = {"journal": str(tmp_path / "journal.db"), "after_s": 0.000_001}
    forms = {**DECLARED, "elicitation": {"form": {}}}
    call: Mapping[str, Any] = {"name": "order", "arguments": {"article": "tea"}}
    async with gateway_process(tmp_path, forms, journal=settings["journal"], after_s=60.0) as client:
        asked = await result(client, "tools/call", **call)
        await client.kill()
    answer = {"inputResponses": {"approval": {"action": "accept", "content": {"approve": True}}}, "requestState": asked["requestState"]}
    async with gateway_process(tmp_path, forms, **settings) as client:
        task = await result(client, "tools/call", **call, **answer)
        assert task["resultType"] == "task"
        assert (await settled(client, task))["result"]["content"][0]["text"] == "ordered tea"
        await client.kill()
    async with gateway(tmp_path, forms, **settings) as client:
        assert (await settled(client, task))["result"]["content"][0]["text"] == "ordered tea"


async def test_the_results_in_memory_are_bounded_in_bytes_and_older_ones_are_read_from_the_record(tmp_path: Path) -> None:
    """The record leaves `isError: false` out, which shows where a result is from."""
    server = [sys.executable, _ODD, "stateless", str(tmp_path)]
    async with gateway(tmp_path, servers=[server], after_s=0.000_001, task_bytes=2_500) as client:
        tasks = []
        for _ in range(4):
            (tmp_path / "go").unlink(missing_ok=True)
            tasks.append(await begun(client, "odd", a="fields"))
            (tmp_path / "go").touch()
            await settled(client, tasks[-1])
        latest = [(await result(client, "tasks/get", taskId=task["taskId"])) for task in tasks[2:]]
        oldest = await settled(client, tasks[0])
    assert [one["result"].get("isError") for one in latest] == [False, False]
    assert "isError" not in oldest["result"]
    assert oldest["result"]["content"] == latest[0]["result"]["content"]


async def test_a_client_that_listens_at_another_gateway_is_told_the_end_of_its_task(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway(tmp_path, journal=journal) as one, gateway(tmp_path, journal=journal) as other:
        task = await begun(one, "look", name="a")
        other.begin("subscriptions/listen", {"notifications": {"taskIds": [task["taskId"]]}})
        assert (await other.next_message())["params"]["notifications"] == {"taskIds": [task["taskId"]]}
        assert (await other.next_message())["params"]["status"] == "working"
        (tmp_path / "a.go").touch()
        told = (await other.next_message())["params"]
    assert (told["status"], told["result"]["structuredContent"]) == ("completed", {"seen": "a"})
