"""An MCP client that speaks one era only, to a server that is a child process. Answers a question to the user with `{"count": 3}`."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from callgate.demo.eras._server import REVISIONS, Era

__all__ = ["EraClient", "client"]

_LIMIT_S = 60.0
_ANSWER = {"action": "accept", "content": {"count": 3}}
_PREFIX = "io.modelcontextprotocol/"


class EraClient:
    """A client of one era. `asked` has the texts of the questions to the user."""

    def __init__(self, process: Process, era: Era) -> None:
        self._process = process
        self._era = era
        self._number = 0
        self.asked: list[str] = []

    async def begin(self) -> None:
        """Begin a session, which only the older era has."""
        if self._era == "old":
            about = {"name": "demonstration", "version": "1"}
            await self.request(
                "initialize", {"protocolVersion": REVISIONS["old"], "capabilities": {"elicitation": {}}, "clientInfo": about}
            )
            self._send({"method": "notifications/initialized"})

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result; answer what is asked on the way."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        result = await self.request("tools/call", params)
        while result.get("resultType") == "input_required":
            answers = {key: self._answer(question["params"]) for key, question in result["inputRequests"].items()}
            result = await self.request("tools/call", {**params, "inputResponses": answers, "requestState": result["requestState"]})
        return result

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its result, or its error as `{"error": ...}`."""
        self._number += 1
        if self._era == "new":
            meta = {f"{_PREFIX}protocolVersion": REVISIONS["new"], f"{_PREFIX}clientCapabilities": {"elicitation": {}}}
            params = {**params, "_meta": meta}
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = await self._receive()
            if message.get("id") == self._number and "method" not in message:
                result: dict[str, Any] = message.get("result", {"error": message.get("error")})
                return result
            if message.get("method") == "elicitation/create":
                self._send({"id": message["id"], "result": self._answer(message["params"])})

    def _answer(self, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(params["message"])
        return _ANSWER

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _LIMIT_S)
        if not line:
            raise ConnectionError("the server has closed its output")
        message: dict[str, Any] = json.loads(line)
        return message


@asynccontextmanager
async def client(command: Sequence[str], era: Era) -> AsyncIterator[EraClient]:
    """Start a server and begin to talk to it; end it afterwards."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    try:
        found = EraClient(process, era)
        await found.begin()
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), _LIMIT_S)
