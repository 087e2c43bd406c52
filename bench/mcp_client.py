"""A client of MCP that does nothing but write requests to a child process and read its responses, and counts the child's CPU time."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import psutil

from bench.measure import Unavailable

__all__ = [
    "ECHO",
    "HANDSHAKE",
    "INITIALIZED",
    "ROOT",
    "SERVER",
    "Client",
    "Era",
    "RawClient",
    "Took",
    "cpu_s",
    "message",
    "need_sdk",
    "tree",
]

Era = Literal["stateless", "handshake"]
SERVER = (sys.executable, "-m", "bench.mcp_server")
"""The command of the server that is called."""
ROOT = Path(__file__).resolve().parent.parent
_PREFIX = "io.modelcontextprotocol/"
_CLIENT = {"name": "bench", "version": "1"}
_META = {f"{_PREFIX}protocolVersion": "2026-07-28", f"{_PREFIX}clientCapabilities": {}, f"{_PREFIX}clientInfo": _CLIENT}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ECHO = {"name": "echo", "arguments": {"text": "hello"}}
"""The parameters of the call that is measured."""


def need_sdk() -> None:
    """Raise `Unavailable` if the server that is called cannot run here."""
    if importlib.util.find_spec("mcp") is None:
        raise Unavailable("the SDK of MCP is not installed")


class Took:
    """What one call has taken, on average.

    Args:
        wall_s: Seconds from the first request to the last response, divided by the number of calls.
        cpu_s: CPU seconds of the child with all its children.
    """

    def __init__(self, wall_s: float, cpu_s: float) -> None:
        self.wall_s = wall_s
        self.cpu_s = cpu_s


class Client(Protocol):
    """Calls the tool `echo` of a server, or of a gateway in front of it."""

    def start(self) -> None:
        """Wait until the server has listed its tools.

        Raises:
            Unavailable: It has ended instead.
        """
        ...

    def calls(self, count: int, at_once: int = 1) -> Took:
        """Make calls, of which `at_once` are running at any time."""
        ...

    def close(self) -> None: ...


def message(number: int, method: str, params: Mapping[str, object], era: Era) -> dict[str, object]:
    """Return a request as JSON-RPC."""
    sent = {**params, "_meta": _META} if era == "stateless" else params
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": sent}


def tree(pid: int) -> list[psutil.Process]:
    """Return a process with all its children."""
    own = psutil.Process(pid)
    return [own, *own.children(recursive=True)]


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Return the CPU seconds that processes have taken, to the nanosecond: psutil has hundredths of a second."""
    return sum(time.clock_gettime(_cpu_clock(process.pid)) for process in processes)


def _cpu_clock(pid: int) -> int:
    """Return the clock of a process's CPU time."""
    clock = ctypes.c_int()
    failed = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if failed:
        raise OSError(failed, os.strerror(failed))
    return clock.value


class RawClient:
    """Implements `Client` over stdio: starts the server, and writes and reads lines.

    Args:
        missing: Why there are no numbers if the program does not answer.
    """

    def __init__(self, command: Sequence[str], era: Era, missing: str = "the server did not answer") -> None:
        self._era = era
        self._numbers = 0
        self._missing = missing
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        try:
            if self._era == "handshake":
                self._ask("initialize", HANDSHAKE)
                self._write(INITIALIZED)
            self._ask("tools/list", {})
        except (OSError, ValueError) as error:
            self.close()
            raise Unavailable(self._missing) from error

    def calls(self, count: int, at_once: int = 1) -> Took:
        processes = tree(self._process.pid)
        cpu, began = cpu_s(processes), time.perf_counter()
        sent = min(at_once, count)
        for _ in range(sent):
            self._send()
        for _ in range(count):
            answer = json.loads(self._read())
            if answer["result"].get("isError"):
                raise RuntimeError(f"a call failed: {answer}")
            if sent < count:
                self._send()
                sent += 1
        wall_s = time.perf_counter() - began
        return Took(wall_s / count, (cpu_s(processes) - cpu) / count)

    def cpu_s(self) -> float:
        """Return the CPU seconds that the child and its children have taken."""
        return cpu_s(tree(self._process.pid))

    def close(self) -> None:
        self._process.communicate()

    def _send(self) -> None:
        self._request("tools/call", ECHO)

    def _ask(self, method: str, params: Mapping[str, object]) -> None:
        self._request(method, params)
        if "result" not in json.loads(self._read()):
            raise ValueError(f"{method} failed")

    def _request(self, method: str, params: Mapping[str, object]) -> None:
        self._numbers += 1
        self._write(message(self._numbers, method, params, self._era))

    def _write(self, sent: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(sent).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> bytes:
        """Return the next response. Skips notifications."""
        assert self._process.stdout is not None
        while b'"id"' not in (line := self._process.stdout.readline()):
            if not line:
                raise ValueError("the server has ended")
        return line
