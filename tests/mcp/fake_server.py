"""A server on standard input and output that does what a script tells it, right or wrong. Runs as a program: `fake_server.py SCRIPT LOG`.

The script is a JSON file; each message that the server gets, and each of its starts, is a line of the log. Speaks JSON-RPC by hand, because
no library would send what these scripts ask for.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from typing import Any, Final

OUT: Final = sys.stdout.fileno()
STATELESS: Final = "2026-07-28"
CHUNK: Final = 1_048_576


def build(node: Any) -> bytes:
    """Return the bytes that a node of the script describes."""
    if isinstance(node, str):
        return node.encode("utf-8", "surrogatepass")
    ((kind, value),) = node.items()
    match kind:
        case "rep":
            return build(value[0]) * int(value[1])
        case "cp":
            return "".join(map(chr, value)).encode("utf-8", "surrogatepass")
        case "b64":
            return base64.b64decode(value)
        case "cat":
            return b"".join(build(part) for part in value)
        case "json":
            return json.dumps(value).encode()
        case "range":
            return str(value[2]).join(str(value[0]).replace("%d", str(index)) for index in range(value[1])).encode()
    raise ValueError(kind)


class FakeServer:
    def __init__(self, script: dict[str, Any], log: str) -> None:
        self.script = script
        self.log = open(log, "a", encoding="utf-8")  # noqa: SIM115
        self.guard = threading.Lock()
        self.cancelled: dict[Any, threading.Event] = {}
        self.tools: list[dict[str, Any]] = script.get("tools", [])
        self.capabilities = {"tools": {"listChanged": True}, **script.get("capabilities", {})}
        self.replies: dict[Any, Any] = {}
        self.replied = threading.Condition()
        self.late: Any = None

    def note(self, **fact: Any) -> None:
        with self.guard:
            self.log.write(json.dumps(fact) + "\n")
            self.log.flush()

    def write(self, data: bytes) -> None:
        with self.guard:
            for start in range(0, len(data), CHUNK):
                rest = data[start : start + CHUNK]
                while rest:
                    rest = rest[os.write(OUT, rest) :]

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps(message).replace("Infinity", "1e400").encode() + b"\n")

    def answer(self, number: Any, result: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "result": result})

    def refuse(self, number: Any, code: int, text: str) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}})

    def serve(self) -> None:
        self.note(started=os.getpid())
        if self.script.get("exit_at_start") is not None:
            sys.stderr.write("this server does not start\n")
            os._exit(self.script["exit_at_start"])
        self.write(self.script.get("begins_with", "").encode())
        if self.script.get("no_read"):
            time.sleep(3_600)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.note(got=message)
            self.take(message)
        if self.script.get("stays"):
            time.sleep(3_600)

    def take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None and number is not None:
            with self.replied:
                self.replies[number] = message.get("result", message.get("error"))
                self.replied.notify_all()
        if method is not None and method == self.script.get("exits_on"):
            os._exit(4)
        if method == "notifications/cancelled":
            self.cancelled.setdefault(message["params"]["requestId"], threading.Event()).set()
        if number is None or method is None or method == self.script.get("hang_on") or self.script.get("hangs"):
            return
        if method == "server/discover":
            self.discover(number)
        elif method == "initialize":
            self.initialize(number, message["params"]["protocolVersion"])
        elif method == "tools/list":
            self.list_tools(number, message.get("params", {}).get("cursor"))
        elif method == "tools/call":
            threading.Thread(target=self.call, args=(number, message["params"]), daemon=True).start()
        elif method == "ping":
            self.answer(number, {})
        elif method in self.script.get("answers", {}):
            given = self.script["answers"][method]
            page = int(message.get("params", {}).get("cursor", 0))
            self.send({"jsonrpc": "2.0", "id": number, **(given[page] if isinstance(given, list) else given)})
        elif method == "subscriptions/listen" and self.script.get("confirms"):
            self.send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": message["params"]})
        elif method != "subscriptions/listen":
            self.refuse(number, -32601, "Method not found")

    def discover(self, number: Any) -> None:
        if self.script.get("era") == "handshake":
            self.refuse(number, -32601, "Method not found")
            return
        if self.script.get("late_discover") and not self.late:
            self.late = number
            return
        self.answer(number, {"resultType": "complete", "supportedVersions": [STATELESS], "capabilities": self.capabilities})

    def initialize(self, number: Any, version: str) -> None:
        if self.script.get("late_discover"):
            self.refuse(number, -32601, "Method not found")
            self.discover(self.late)
            return
        info = {"name": "fake", "version": "1"}
        self.answer(
            number,
            {"protocolVersion": self.script.get("version", version), "capabilities": self.capabilities, "serverInfo": info},
        )

    def list_tools(self, number: Any, cursor: str | None) -> None:
        if self.script.get("live"):  # the script may have been changed meanwhile
            with open(sys.argv[1], encoding="utf-8") as file:
                self.answer(number, json.load(file)["live"])
            return
        pages = self.script.get("pages")
        if pages is None:
            self.answer(number, {"tools": self.tools})
            return
        page = int(cursor or 0)
        following = {"nextCursor": str(page + 1)} if page + 1 < pages else {}
        self.answer(number, {"tools": [*(self.tools if page == 0 else ()), tool(f"page_{page}")], **following})

    def call(self, number: Any, params: dict[str, Any]) -> None:
        if params["name"] == "echo":
            self.answer(number, {"content": [{"type": "text", "text": params["arguments"].get("text", "")}]})
            return
        if params["name"] == "crash":
            os._exit(1)
        for frame in self.script.get("frames", ()):
            if isinstance(frame, dict) and "ask" in frame:
                reply = self.ask(frame["ask"], number, params)
                if reply is None:
                    return
                self.answer(number, {"content": [{"type": "text", "text": json.dumps(reply)}]})
            else:
                self.play(frame, number, params)

    def ask(self, asked: dict[str, Any], number: Any, params: dict[str, Any]) -> Any:
        """Return the client's reply to a request; None if the call goes on with a request of its own, in the stateless era."""
        if self.script.get("era") == "handshake":
            self.send({"jsonrpc": "2.0", "id": f"ask-{number}", **asked})
            with self.replied:
                self.replied.wait_for(lambda: f"ask-{number}" in self.replies)
            return self.replies[f"ask-{number}"]
        if params.get("requestState") == "asked" and not asked.get("again"):
            return params["inputResponses"]["question"]
        requests = {"question": asked}
        self.answer(number, {"resultType": "input_required", "inputRequests": requests, "requestState": "asked"})
        return None

    def play(self, frame: Any, number: Any, params: dict[str, Any]) -> None:
        cancelled = self.cancelled.setdefault(number, threading.Event())
        meta = params.get("_meta", {})
        match frame:
            case {"eof": _} | {"exit": _}:
                os._exit(frame.get("exit", 0))
            case {"sleep": seconds}:
                time.sleep(seconds)
            case {"stderr": node}:
                sys.stderr.buffer.write(build(node))
                sys.stderr.buffer.flush()
            case {"every": seconds, "send": node}:
                while True:
                    self.write(self.filled(node, number))
                    time.sleep(seconds)
            case {"drip": [node, seconds]}:
                for byte in self.filled(node, number):
                    self.write(bytes([byte]))
                    time.sleep(seconds)
            case {"close_stdout": _}:
                os.close(OUT)
                time.sleep(3_600)
            case {"after_cancel": node} | {"race_cancel": node}:
                cancelled.wait()
                self.write(self.filled(node, number))
            case {"until_cancelled": _}:
                cancelled.wait()
            case {"progress": text}:
                told = {"progressToken": meta.get("progressToken"), "progress": 1, "total": 2, "message": text}
                self.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
            case {"list_changes_tool": _}:
                self.tools = [{**one, "description": one["description"] + " Changed."} for one in self.tools]
                self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            case {"tools_now": tools}:
                self.tools = tools
                self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            case {"spawn": code}:
                os.system(f"{sys.executable} -c '{code}'")
            case {"exit_after_first": _}:
                if not os.path.exists(f"{self.log.name}.first"):
                    open(f"{self.log.name}.first", "w").close()
                    os._exit(1)
            case _:
                self.write(self.filled(frame, number))

    @staticmethod
    def filled(node: Any, number: Any) -> bytes:
        data = build(node)
        return data.replace(b"{ID}", str(number).encode()) if len(data) < 30_000_000 else data


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        FakeServer(json.load(file), sys.argv[2]).serve()
