"""Commands of programs that others start, as an engine starts its servers: each runs in a process that is forked from one with callgate
and the SDK of MCP imported, because these imports take a second. For programs that a test starts itself, see `forked_python`.

This module is also two programs: the process that forks, and what the command starts, which hands on its folder, its environment and its
standard streams, and ends as the forked process does. If it is killed, so is the forked process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

__all__ = ["forked_program"]

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MOST_BYTES = 1_048_576
_STREAMS = (0, 1, 2)
_IMPORTED = (
    "mcp.server.mcpserver",
    "mcp_server_time",
    "tests.conformance.client",
    "tests.gateway.app_server",
    "tests.gateway.approval_gateway",
    "tests.gateway.dual_era_server",
    "tests.gateway.task_gateway",
)
_started: list[str] = []
"""The address of the process that forks, once it has been started."""


def forked_program(*words: str) -> list[str]:
    """Return the command of a program that Python runs with these words: `-m` and a module, or a file, and arguments. More may follow."""
    if sys.platform != "linux":
        return [sys.executable, *words]
    if not _started:
        _started.append(_start())
    return [sys.executable, "-I", "-S", __file__, _started[0], *words]


def _start() -> str:
    import atexit
    import subprocess
    import tempfile

    folder = tempfile.TemporaryDirectory()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.bind(address := f"{folder.name}/orders")
        asked.listen()
        words = [sys.executable, "-m", "tests.forked_programs", "--fork", str(asked.fileno())]
        forking = subprocess.Popen(words, cwd=_ROOT, stdin=subprocess.DEVNULL, pass_fds=[asked.fileno()])

    def end() -> None:
        forking.kill()
        forking.wait()
        folder.cleanup()

    atexit.register(end)
    return address


def _hand_on(address: str, words: list[str]) -> NoReturn:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as order:
        order.connect(address)
        socket.send_fds(order, [json.dumps([words, os.getcwd(), dict(os.environ)]).encode()], _STREAMS)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in _STREAMS:
            os.dup2(nothing, stream)
        code = int(order.recv(16) or 1)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _fork_for_each(asked: socket.socket) -> NoReturn:
    import gc
    from contextlib import suppress
    from importlib import import_module

    for name in _IMPORTED:
        with suppress(ImportError):
            import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        order, _ = asked.accept()
        if os.fork() == 0:
            asked.close()
            _run_order(order)
        order.close()


def _run_order(order: socket.socket) -> NoReturn:
    """Run the program in a child of this process, tell its exit code and end; kill it if the program that handed it on has ended."""
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, given, _, _ = socket.recv_fds(order, _MOST_BYTES, len(_STREAMS))
    for stream, number in zip(given, _STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    program = os.fork()
    if program == 0:
        order.close()
        _run(*json.loads(text))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in _STREAMS:
        os.dup2(nothing, number)
    ended = os.pidfd_open(program)
    ready, _, _ = select.select([ended, order.fileno()], [], [])
    if ended not in ready:
        os.kill(program, signal.SIGKILL)
    _, status = os.waitpid(program, 0)
    if ended in ready:
        order.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(words: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """Run the program as if Python had been started with these words in that folder."""
    import runpy
    import traceback

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code: Any = 1
    try:
        is_module = words[0] == "-m"
        sys.argv = words[1:] if is_module else words
        sys.path[0] = folder if is_module else os.path.dirname(words[0])
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    if sys.argv[1] == "--fork":
        _fork_for_each(socket.socket(fileno=int(sys.argv[2])))
    _hand_on(sys.argv[1], sys.argv[2:])
