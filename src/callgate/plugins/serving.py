"""`serve`: the other end of the plugin protocol, for plugins in Python.

A plugin's program is `serve([tools])` with functions under `@tool`. After that, only the protocol uses standard input and output: what
the tools print goes to standard error, and they read an empty input.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, BinaryIO

import msgspec

from callgate._abort_signals import AbortSignal
from callgate._json.malformed_text import without_surrogates
from callgate._run_in_thread import in_thread
from callgate._runners.exception_results import execution_of_exception
from callgate._runners.return_values import read_result
from callgate._server_processes.json_lines import UnreadableJson, encoded, read_json
from callgate._server_processes.line_process import MAX_LINE_BYTES
from callgate._server_processes.protocol_streams import protocol_streams
from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.plugins.manifest import PROTOCOL, ToolSettings
from callgate.protocols import Execution
from callgate.tools import FunctionTool, ToolContext, ToolRegistry, ValidationResult
from callgate.tools.tool_declaration import Tool

__all__ = ["serve"]

_DESCRIBED = tuple(name for name in ToolSettings.__struct_fields__ if name not in ("input_schema", "output_schema", "key"))


def serve(tools: Iterable[Tool], *, name: str = "", version: str = "") -> None:
    """Serve these tools to the engine that has started this process. Returns when the engine stops the plugin.

    Async functions run on one event loop, others in a thread each. `ctx.progress` is shown live. A cancelled call cancels an async
    function, and fires `ctx.signal`.

    Args:
        tools: Functions under `@tool`.
        name: The plugin's name. The engine uses that of the manifest.
        version: The plugin's version.

    Raises:
        UsageError: One of them is not a function under `@tool`, or cannot be registered.
    """
    given = list(tools)
    for one in given:
        if not isinstance(one, FunctionTool):
            raise UsageError(f"serve([...]) takes functions under @tool; got {one!r:.200}.")
    registry = ToolRegistry(given)
    with protocol_streams() as (reading, writing):
        asyncio.run(_Server(registry, reading, writing, {"name": name, "version": version}).run())
    sys.stdout.flush()
    os._exit(0)  # a plain function may still run in its thread, and must not keep the process


class _Server:
    def __init__(self, registry: ToolRegistry, reading: BinaryIO, writing: BinaryIO, about: Mapping[str, str]) -> None:
        self._reading = reading
        self._writing = writing
        self._about = about
        self._guard = threading.Lock()
        self._tools = {bound.name: bound.tool for bound in registry}
        self._calls: dict[int, tuple[asyncio.Task[None], AbortSignal]] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        lines = asyncio.StreamReader(limit=MAX_LINE_BYTES + 1)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), self._reading)
        while line := await lines.readline():
            try:
                message = read_json(line)
            except UnreadableJson as error:
                self._send({"kind": "log", "level": "error", "text": f"the engine sent a line that is not a message: {error}"})
                continue
            if isinstance(message, dict) and not self._take(message):
                break
        for task, signal in self._calls.values():
            signal.fire("the plugin is stopped")
            task.cancel()
        if self._calls:
            await asyncio.wait([task for task, _ in self._calls.values()], timeout=0.5)

    def _take(self, message: dict[str, Any]) -> bool:
        """Handle one message; return whether there may be more."""
        match message:
            case {"kind": "hello"}:
                self._send({"kind": "ready", "protocol": PROTOCOL, **self._about, "tools": self._describe_tools()})
            case {"kind": "describe"}:
                self._send({"kind": "tools", "tools": self._describe_tools()})
            case {"kind": "call", "id": int(request_id)}:
                signal = AbortSignal()
                task = self._loop.create_task(self._call(request_id, message, signal), context=Context())
                self._calls[request_id] = task, signal
                task.add_done_callback(lambda _: self._calls.pop(request_id, None))
            case {"kind": "cancel", "id": int(request_id)} if request_id in self._calls:
                task, signal = self._calls[request_id]
                signal.fire(str(message.get("reason", "")))
                task.cancel()
            case {"kind": "ping"}:
                self._send({"kind": "pong"})
            case {"kind": "shutdown"}:
                return False
        return True

    async def _call(self, request_id: int, message: dict[str, Any], signal: AbortSignal) -> None:
        try:
            context = self._context(request_id, message, signal)
            execution = await self._run(self._tools[context.tool], context, message["arguments"])
        except asyncio.CancelledError:
            self._send({"kind": "error", "id": request_id, "message": "it was cancelled", "code": "cancelled"})
            return
        except (KeyError, TypeError, ValueError) as error:
            self._send({"kind": "error", "id": request_id, "message": f"no such call: {error}", "code": "bad_call", "not_sent": True})
            return
        self._send({"id": request_id, **_answer(execution)})

    async def _run(self, tool: Tool, context: ToolContext, arguments: dict[str, Any]) -> Execution:
        found = await in_thread(partial(tool.own_validation, arguments)) if tool.has_validator() else ValidationResult(valid=True)
        if not found.valid:
            return Execution(status="raised", error="; ".join(found.errors), error_type="invalid_parameters", evidence="not_sent")
        arguments = found.cleaned_params or arguments
        if inspect.iscoroutinefunction(tool.execute):
            try:
                value = await tool.invoke(context, arguments)  # type: ignore[misc]
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                return execution_of_exception(error, tool.not_done)
            return await in_thread(partial(read_result, Execution(status="returned", value=value), MAX_LINE_BYTES, context.workspace))
        return await in_thread(partial(_run_in_this_thread, tool, context, arguments))

    def _context(self, request_id: int, message: dict[str, Any], signal: AbortSignal) -> ToolContext:
        told: Mapping[str, Any] = message["context"]
        scope = {key: told[key] for key in ("conversation", "run", "actor", "principal", "workspace", "locale")}
        return ToolContext(
            scope=Scope(**scope),
            call_id=str(request_id),
            uid=str(request_id),
            tool=message["tool"],
            idempotency_key=told["idempotency_key"],
            signal=signal,
            report=partial(self._progress, request_id),
            attempt=told["attempt"],
            deadline=time.monotonic() + told["deadline_s"],
        )

    def _describe_tools(self) -> list[dict[str, object]]:
        return [_describe_tool(tool) for tool in self._tools.values()]

    def _progress(self, request_id: int, text: str, stream: str) -> None:
        self._send({"kind": "progress", "id": request_id, "text": without_surrogates(text), "stream": stream})

    def _send(self, message: Mapping[str, object]) -> None:
        """Write one message; also called from threads."""
        rest = memoryview(encoded(message) + b"\n")
        with self._guard:
            while rest:
                rest = rest[self._writing.write(rest) or 0 :]


def _run_in_this_thread(tool: Tool, context: ToolContext, arguments: dict[str, Any]) -> Execution:
    """Run a plain function in this thread."""
    try:
        value = tool.invoke(context, arguments)
    except BaseException as error:  # also SystemExit: it must not end only this thread without an answer
        return execution_of_exception(error, tool.not_done)
    return read_result(Execution(status="returned", value=value), MAX_LINE_BYTES, context.workspace)


def _answer(execution: Execution) -> dict[str, object]:
    """Return an execution as a `result` or an `error`."""
    if execution.status == "returned" and not execution.error and execution.failure is None:
        answer: dict[str, object] = {"kind": "result", "value": execution.value}
        if execution.content:
            answer["content"] = execution.content
        return answer
    return {
        "kind": "error",
        "message": execution.failure or execution.error,
        "code": execution.error_type,
        "done": execution.status == "returned",  # its result cannot be used, or says that it has failed
        "not_done": execution.evidence == "not_done",
        "not_sent": execution.evidence == "not_sent",
        "retry_after_s": (execution.retry_after_s or 0.0) if execution.retryable else None,
    }


def _describe_tool(tool: Tool) -> dict[str, object]:
    """Return a tool as the protocol describes it. Options that are code are left out."""
    found: dict[str, object] = {"input_schema": tool.parameters, "output_schema": tool.result_schema(), "key": tool.effect_key}
    found |= {name: getattr(tool, name) for name in _DESCRIBED}
    described: dict[str, object] = {}
    for name, value in found.items():
        try:
            if value is not None:
                described[name] = msgspec.convert(value, _KINDS[name])
        except msgspec.ValidationError:  # a function of the arguments, which the engine cannot call
            if name == "requires_approval":
                described[name] = True  # the function cannot be asked, so a human is
    return described


_KINDS = {field.name: field.type for field in msgspec.structs.fields(ToolSettings)}
