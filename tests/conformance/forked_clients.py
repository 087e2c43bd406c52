"""Play scenarios in processes that are forked from one that has callgate imported: imports take most of a scenario's time.

Each scenario has a process with its own environment, output and exit code, as the suite expects. This module is also two programs: the
process that forks, and what the suite starts for a scenario, which hands on what it was given and ends as the forked process does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["client_command"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_MOST_BYTES = 1_048_576
_STREAMS = (1, 2)


@contextmanager
def client_command() -> Iterator[str]:
    """Yield the command line of the client, to which the suite adds an address."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.bind(place := f"{folder}/orders")
        asked.listen()
        words = [sys.executable, "-m", "tests.conformance.forked_clients", str(asked.fileno())]
        with subprocess.Popen(words, cwd=_ROOT, pass_fds=[asked.fileno()]) as forking:
            try:
                yield f"{sys.executable} -I -S {__file__} --at {place}"
            finally:
                forking.terminate()


def _hand_on(place: str, url: str) -> int:
    """Return the exit code of the forked process, 1 if it tells none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as order:
        order.connect(place)
        socket.send_fds(order, [json.dumps([url, dict(os.environ)]).encode()], _STREAMS)
        return int(order.recv(16) or 1)


def _fork_for_each(asked: socket.socket) -> NoReturn:
    import gc

    from tests.conformance.client import play_told

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        order, _ = asked.accept()
        if os.fork() == 0:
            asked.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _play(order, play_told)
        order.close()


def _play(order: socket.socket, play: Callable[[str], None]) -> NoReturn:
    """Play the scenario of an order in this process, tell the exit code and end."""
    import traceback

    text, given, _, _ = socket.recv_fds(order, _MOST_BYTES, len(_STREAMS))
    for stream, number in zip(given, _STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    url, environment = json.loads(text)
    os.environ.clear()
    os.environ.update(environment)
    code = 0
    try:
        play(url)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    order.send(str(code).encode())
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "--at":
        sys.exit(_hand_on(*sys.argv[2:]))
    _fork_for_each(socket.socket(fileno=int(sys.argv[1])))
