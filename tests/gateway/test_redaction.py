"""A secret that the operator has registered reaches no client, whatever a server puts it into."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.gateway.raw_client import Era, RawClient, raw_client

pytestmark = [pytest.mark.process]

SECRET = "a-secret-of-the-operator"
LEAKING = str(Path(__file__).with_name("leaking_server.py"))


async def everything(client: RawClient) -> list[Any]:
    """Ask for everything, and return all that the client got."""
    told: list[Any] = []
    for method, params in (
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/read", {"uri": "x://one"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "one"}),
    ):
        told.append((await client.request(method, params))["result"])
    meta = {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"} if client.era == "stateless" else {"progressToken": 1}
    call: dict[str, Any] = {"name": "leak", "arguments": {}, "_meta": meta}
    _, response = client.begin("tools/call", call)
    answer = {"action": "decline"}
    if client.era == "stateless":
        asked = (await response)["result"]
        (key,) = asked["inputRequests"]
        told += [
            asked,
            await client.request("tools/call", {**call, "inputResponses": {key: answer}, "requestState": asked["requestState"]}),
        ]
    else:
        while "id" not in (message := await client.next_message()):
            told.append(message)
        client.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        told += [message, await response]
    told += [client.messages.get_nowait() for _ in range(client.messages.qsize())]
    return told


@pytest.mark.parametrize("era", get_args(Era))
async def test_a_registered_secret_reaches_no_client(era: Era, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR_SECRET", SECRET)
    config = tmp_path / "gate.toml"
    server = json.dumps(shlex.join([sys.executable, LEAKING, SECRET]))
    config.write_text(f'journal = ":memory:"\nredact_env = ["OPERATOR_SECRET"]\n[servers.leaking]\ncommand = {server}\n', encoding="utf-8")
    command = [sys.executable, "-m", "callgate.cli", "serve", "--config", str(config)]
    async with raw_client(command, era, {"elicitation": {"form": {}}}) as client:
        told = await everything(client)
    methods = {message.get("method") for message in told}
    assert {"notifications/progress", "notifications/message"} <= methods
    assert SECRET not in json.dumps(told)
    assert json.dumps(told).count("***") >= 12
