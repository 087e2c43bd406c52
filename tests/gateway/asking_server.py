"""An MCP server over stdio that asks its client during calls: `python asking_server.py ERA LOG`. It needs only the standard library.

Its tools: `ask` asks the user for a name, and returns the answer, and `ask_then_work` reports progress before that; `ask_twice` asks for
two names, one after the other; `model` asks for a message of a language model; `folders` asks for the roots; `work` reports progress and a
log message, then answers, and so do reads of resources and prompts; `wait` waits until it is cancelled. A tool with `_later` at the end of
its name does nothing until the file `LOG.go` exists, or `LOG.X` with the argument `go: X`; then it does what the name before that says,
and `fail` answers with a JSON-RPC error. `pay_first` refuses its first call, in the way of revision 2025-11-25, until the user has opened
an address. The argument `as` is part of the question; with `mode: url`, `ask` sends the user to an address; the arguments of `model` are
part of its request. `LOG` is a file: one line for each start of the process, each call and each cancellation, and in the handshake era for
each question and its answer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

ERA, LOG = sys.argv[1], sys.argv[2]
TOOLS = (
    "ask",
    "ask_twice",
    "model",
    "folders",
    "work",
    "wait",
    "pay_first",
    "ask_then_work",
    *(f"{name}_later" for name in ("ask", "ask_twice", "model", "work", "fail")),
)
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PAGE = {"mode": "url", "message": "Pay", "elicitationId": "p", "url": "https://shop.example/pay"}
CONTENT: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
CACHED: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private"} if ERA == "stateless" else {}
waiting: dict[object, Any] = {}
"""What continues when the client answers a request of this server, by the request's id."""
writing = threading.Lock()


def log(text: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def reply(number: object, **result: Any) -> None:
    send({"id": number, "result": {"resultType": "complete", **result} if ERA == "stateless" else result})


def text(number: object, value: object) -> None:
    reply(number, content=[{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}])


def question(tool: str, round_: int, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if tool == "model":
        messages = [{"role": "user", "content": {"type": "text", "text": "hi"}}]
        return "sampling/createMessage", {"messages": messages, "maxTokens": 5, **params["arguments"]}
    if tool == "folders":
        return "roots/list", {}
    if params["arguments"].get("mode") == "url":
        named = {} if ERA == "stateless" else {"elicitationId": "e"}
        return "elicitation/create", {"mode": "url", "message": "Go", **named, "url": "https://shop.example/pay"}
    asks_as = params["arguments"].get("as", round_)
    return "elicitation/create", {"mode": "form", "message": f"Your name? ({asks_as})", "requestedSchema": FORM}


def report(params: dict[str, Any]) -> None:
    notes: list[dict[str, Any]] = [{"progress": 1, "total": 2, "message": "half", "vendor": 1}, {"progress": 2, "total": 2}]
    meta = params.get("_meta", {})
    if "progressToken" in meta:
        for note in notes:
            send({"method": "notifications/progress", "params": {**note, "progressToken": meta["progressToken"]}})
    send({"method": "notifications/message", "params": {"level": "warning", "logger": "x", "data": {"b": 1, "a": 2}}})


def call(number: object, tool: str, params: dict[str, Any]) -> None:
    if tool == "fail":
        send({"id": number, "error": {"code": -32050, "message": "out of paper", "data": {"tray": 2}}})
    elif tool == "pay_first":
        paid = "paid" in waiting
        waiting["paid"] = True
        if paid:
            text(number, "paid")
        else:
            send({"id": number, "error": {"code": -32042, "message": "Pay first.", "data": {"elicitations": [PAGE], "vendor": 1}}})
    elif tool == "work":
        report(params)
        text(number, "done")
    elif tool != "wait":
        (ask_stateless if ERA == "stateless" else ask_handshake)(number, tool, params)


def call_later(number: object, tool: str, params: dict[str, Any]) -> None:
    while not os.path.exists(f"{LOG}.{params['arguments'].get('go', 'go')}"):
        time.sleep(0.01)
    call(number, tool, params)


def end(number: object, tool: str, params: dict[str, Any], answers: list[Any]) -> None:
    if tool == "ask_then_work":
        report(params)
    text(number, answers)


def ask_stateless(number: object, tool: str, params: dict[str, Any]) -> None:
    answers = json.loads(params["requestState"]) if "requestState" in params else []
    answers += list(params.get("inputResponses", {}).values())
    if len(answers) < (2 if tool == "ask_twice" else 1):
        method, asked = question(tool, len(answers) + 1, params)
        requests = {"who": {"method": method, "params": asked}}
        reply(number, resultType="input_required", inputRequests=requests, requestState=json.dumps(answers))
    else:
        end(number, tool, params, answers)


def ask_handshake(number: object, tool: str, params: dict[str, Any]) -> None:
    answers: list[Any] = []

    def answered(message: dict[str, Any]) -> None:
        log("answered")
        answers.append(message.get("result", message.get("error")))
        if len(answers) < (2 if tool == "ask_twice" else 1):
            ask()
        else:
            end(number, tool, params, answers)

    def ask() -> None:
        method, asked = question(tool, len(answers) + 1, params)
        own = f"server-{number}-{len(answers)}"
        waiting[own] = answered
        log("asks")
        send({"id": own, "method": method, "params": asked})

    ask()


def take(message: dict[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params", {})
    match method:
        case None:
            waiting.pop(number)(message)
        case "initialize" if ERA == "handshake":
            log(f"initialize {json.dumps(params['capabilities'], sort_keys=True)}")
            about = {"name": "asking", "version": "1"}
            reply(number, protocolVersion="2025-11-25", capabilities={**CONTENT, "logging": {}}, serverInfo=about)
        case "server/discover" if ERA == "stateless":
            reply(number, supportedVersions=["2026-07-28"], capabilities=CONTENT, ttlMs=0, cacheScope="private")
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            reply(number, tools=tools, **CACHED)
        case "tools/call":
            capabilities = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})
            log(f"call {params['name']} {json.dumps(capabilities, sort_keys=True)}")
            tool = params["name"]
            if tool.endswith("_later"):
                threading.Thread(target=call_later, args=(number, tool.removesuffix("_later"), params), daemon=True).start()
            else:
                call(number, tool, params)
        case "resources/read":
            report(params)
            reply(number, contents=[{"uri": params["uri"], "text": "done"}], **CACHED)
        case "prompts/get":
            report(params)
            reply(number, messages=[{"role": "user", "content": {"type": "text", "text": "done"}}])
        case "notifications/cancelled":
            log("cancelled")
        case "ping":
            reply(number)
        case _ if number is not None:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


log("start")
for line in sys.stdin:
    take(json.loads(line))
