"""Tools that misuse their process, importable by a worker process."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import locale
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from contextlib import suppress
from typing import NoReturn

from callgate.tools import ToolContext, tool

# Tools that never return, each with something that survives a simple kill.


def _wait(context: ToolContext) -> NoReturn:
    context.progress("begun")
    while True:
        time.sleep(600)


@tool
def own_session(context: ToolContext) -> None:
    """Start a child in a new session."""
    subprocess.Popen(["setsid", "sleep", "600"])
    _wait(context)


@tool
def double_fork(context: ToolContext) -> None:
    """Leave an orphan in a new session."""
    subprocess.run(["setsid", "sh", "-c", "(sleep 600 & sleep 600 &)"], check=True)
    _wait(context)


@tool
def ignores_term(context: ToolContext) -> None:
    """Ignore SIGTERM, in this process and in its children."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 600 & while :; do sleep 1; done"])
    _wait(context)


@tool
def swallows_everything(context: ToolContext) -> None:
    """Catch every exception and continue."""
    context.progress("begun")
    while True:
        with suppress(BaseException):
            time.sleep(600)


@tool
def stopped(context: ToolContext) -> None:
    """Stop a child and then itself."""
    child = subprocess.Popen(["sleep", "600"])
    child.send_signal(signal.SIGSTOP)
    context.progress("begun")
    os.kill(os.getpid(), signal.SIGSTOP)


@tool
def fifty_forks(context: ToolContext) -> None:
    """Start fifty children, half of which become orphans."""
    for _ in range(25):
        subprocess.Popen(["sleep", "600"])
    subprocess.run(["sh", "-c", "for i in $(seq 25); do (setsid sleep 600 &) ; done"], check=True)
    _wait(context)


@tool
def busy_loop(context: ToolContext) -> None:
    """Run a loop without a pause."""
    context.progress("begun")
    while True:
        pass


@tool
def stuck_in_c(context: ToolContext) -> None:
    """Wait in C code that restarts after signals and holds the GIL."""
    context.progress("begun")
    while ctypes.PyDLL(None).sleep(600):
        pass


@tool
async def swallows_cancel(context: ToolContext) -> None:
    """Start a child and ignore cancellation."""
    await asyncio.create_subprocess_exec("sleep", "600")
    context.progress("begun")
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


# Tools that end their process.


@tool
def segfault() -> None:
    """Read address 0."""
    ctypes.string_at(0)


@tool
def os_exit() -> None:
    """End the process with `os._exit`."""
    sys.stdout.write("last words\n")
    os._exit(7)


@tool
def kills_itself() -> None:
    """Kill its own process with SIGKILL, like the kernel when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def closes_everything() -> str:
    """Close every descriptor, including the runner's own."""
    os.closerange(0, 4096)
    return "unheard"


@tool
def kills_its_supervisor() -> None:
    """Kill its parent process after it has started a child in a new session."""
    subprocess.Popen(["setsid", "sleep", "600"])
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@tool
def speaks_for_others(context: ToolContext, kind: str, body: str) -> None:
    """Write a frame to the runner's own channel."""
    for fd in range(200, 300):
        with suppress(OSError):
            os.write(fd, kind.encode() + len(body).to_bytes(4, "big") + body.encode())
    context.progress("written")
    time.sleep(600)


@tool
def floods_the_channel() -> None:
    """Announce a frame of 4 GiB to the runner."""
    for fd in range(200, 300):
        with suppress(OSError):
            os.write(fd, b"E" + b"\xff" * 4)
    time.sleep(600)


# Tools that return and leave state or processes in their worker.


@tool
def leaves_children() -> str:
    """Return while its children run."""
    subprocess.Popen(["setsid", "sh", "-c", "(sleep 600 &) ; sleep 600"])
    return "done"


@tool
def grandchild_holds_pipe() -> str:
    """Return while a grandchild holds the standard output open."""
    subprocess.run("sleep 600 & echo started", shell=True, check=True)
    return "done"


@tool
def forks_and_returns() -> int:
    """Fork, so that both processes return."""
    os.fork()
    return 1


@tool
def noisy_out() -> str:
    """Write to descriptor 1."""
    os.write(1, b"noise\n" * 20_000)
    return "real"


@tool
def noisy_err() -> str:
    """Write a very long line to the standard error."""
    sys.stderr.write("e" * 40_000_000)
    return "real"


@tool
def closes_stdout() -> str:
    """Close descriptor 1."""
    os.close(1)
    return "done"


@tool
def wants_memory() -> int:
    """Allocate 3 GiB."""
    return len(bytearray(3 * 1024**3))


@tool
def changes_directory() -> str:
    """Change the working directory."""
    os.chdir("/")
    return os.getcwd()


@tool
def changes_environment() -> str:
    """Change the environment."""
    os.environ["LEFT_BEHIND"] = "yes"
    del os.environ["PATH"]
    return "done"


@tool
def leaves_thread() -> str:
    """Start a thread that is not a daemon."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "done"


@tool
def leaves_thread_and_returns_much() -> str:
    """Start a thread that is not a daemon, and return a megabyte."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "x" * 1_000_000


@tool
def lowers_recursion_limit() -> list[object]:
    """Lower the recursion limit."""
    sys.setrecursionlimit(80)
    return [[[[1]]]]


@tool
def lowers_limits() -> str:
    """Lower a hard resource limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return "done"


@tool
def sets_alarm() -> str:
    """Set a timer that would kill the process during the next call."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 600)
    return "done"


@tool
def becomes_nobody() -> str:
    """Give up root's rights permanently."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    return "done"


@tool
def changes_root() -> str:
    """Make another folder the root of all paths."""
    os.chroot("/tmp")
    return "done"


@tool
def blocks_signals() -> str:
    """Block two signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCONT})
    return "done"


@tool
def ignores_in_c() -> str:
    """Ignore a signal in C, without Python's `signal` module."""
    ctypes.CDLL(None).signal(signal.SIGUSR2, ctypes.c_void_p(1))
    return "done"


@tool
def handles_rare_signals() -> str:
    """Install handlers for rarely used signals."""
    for number in (signal.SIGQUIT, signal.SIGWINCH, signal.SIGRTMIN):
        signal.signal(number, lambda *_: None)
    return "done"


@tool
def sets_locale() -> str:
    """Change the locale."""
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    return "done"


@tool
def sets_umask() -> str:
    """Set a umask that removes all permissions."""
    os.umask(0o777)
    return "done"


@tool
def takes_one_processor() -> str:
    """Restrict the process to one processor and the lowest priority."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.nice(19)
    return "done"


@tool
def puts_in_the_environment() -> str:
    """Change the environment without `os.environ`."""
    os.putenv("LEFT_BEHIND", "yes")
    os.unsetenv("HOME")
    return "done"


@tool
def sets_in_the_environment_in_c() -> str:
    """Change the environment through the C library."""
    ctypes.CDLL(None).setenv(b"LEFT_BEHIND", b"yes", 1)
    return "done"


@tool
def replaces_the_environment() -> str:
    """Replace `os.environ` by another object."""
    os.environ = {"LEFT_BEHIND": "yes"}  # type: ignore[assignment]  # noqa: B003
    return "done"


@tool
def moves_to_tokyo() -> str:
    """Change the time zone and remove the variable that shows it."""
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    del os.environ["TZ"]
    return "done"


@tool
def lowers_a_soft_limit() -> str:
    """Lower a rarely used soft limit."""
    resource.setrlimit(resource.RLIMIT_NPROC, (7, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
    return "done"


@tool
def patches_the_library() -> str:
    """Replace a function of the standard library."""
    json.dumps = lambda *_, **__: "forged"
    return "done"


@tool
def replaces_a_module() -> str:
    """Replace a module of the standard library."""
    sys.modules["json"] = types.ModuleType("json")
    return "done"


@tool
def changes_imports() -> str:
    """Break the import of modules."""
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path.clear()
    return "done"


@tool
def changes_the_interpreter() -> str:
    """Change settings of the whole interpreter."""
    gc.disable()
    sys.setswitchinterval(1.0)
    sys.set_int_max_str_digits(1_000)
    socket.setdefaulttimeout(0.001)
    return "done"


@tool
async def leaves_task() -> str:
    """Leave a task that ignores cancellation."""
    keep.append(asyncio.ensure_future(_stubborn()))
    await asyncio.sleep(0)
    return "done"


keep: list[object] = []


async def _stubborn() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


@tool
def leaks_every_file() -> int:
    """Open files up to the limit and leave them open."""
    count = 0
    with suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)
            count += 1
    return count


# Tools that inspect their process.


@tool
def state() -> dict[str, object]:
    """Return the state of its process."""
    return {
        "pid": os.getpid(),
        "cwd": os.getcwd(),
        "environ": {name: value for name, value in os.environ.items() if name != "CALLGATE_CALL"},
        "recursion": sys.getrecursionlimit(),
        "threads": threading.active_count(),
        "stdin": sys.stdin.read(),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "user": [os.getuid(), os.getgid(), os.getgroups()],
        "root": os.stat("/").st_ino,
        "signals": [line for line in open("/proc/self/status") if line[:6] in ("SigBlk", "SigIgn", "SigCgt")]
        if os.path.exists("/proc")
        else [],
        "locale": locale.setlocale(locale.LC_ALL),
        "umask": subprocess.run(["sh", "-c", "umask"], capture_output=True, text=True, check=True).stdout,
        "child's environment": sorted(
            line
            for line in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.splitlines()
            if not line.startswith(("CALLGATE_", "_="))
        ),
        "scheduling": [sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [], os.getpriority(os.PRIO_PROCESS, 0)],
        "limits": [resource.getrlimit(number) for number in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)],
        "zone": [time.tzname, time.timezone],
        "imports": [sys.modules["json"] is json, json.dumps([]), len(sys.meta_path), len(sys.path_hooks), len(sys.path)],
        "interpreter": [gc.isenabled(), sys.getswitchinterval(), sys.get_int_max_str_digits(), socket.getdefaulttimeout()],
    }


@tool
def reads_folder() -> int:
    """Read a folder, which needs one free descriptor."""
    return len(os.listdir("/"))


@tool
def facts(context: ToolContext) -> dict[str, object]:
    """Return the facts of its call."""
    scope = context.scope
    return {
        "call_id": context.call_id,
        "uid": context.uid,
        "key": context.idempotency_key,
        "attempt": context.attempt,
        "left": context.deadline - time.monotonic(),
        "allowed": sorted(scope.allowed_tools or ()),
        "principal": context.principal,
        "extra": context.extra,
        "marker": os.environ["CALLGATE_CALL"],
    }


@tool
def uses_extra(context: ToolContext) -> object:
    """Use the host's object from the scope."""
    return context.extra.connection  # type: ignore[attr-defined]


@tool
async def calls_another(context: ToolContext) -> object:
    """Call another tool."""
    return await context.call("state", {})


@tool
def cleans_up(context: ToolContext, path: str) -> None:
    """Write a file when it is stopped."""
    try:
        context.progress("begun")
        time.sleep(600)
    finally:
        with open(path, "w") as file:
            file.write(context.signal.reason or "")


@tool
def streams_command(context: ToolContext, command: str) -> int:
    """Run a command and report its output as progress."""
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            context.progress(line, stream="stdout")
    return process.returncode
