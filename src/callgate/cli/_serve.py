"""`callgate serve`: serve MCP clients, until they are gone or a signal ends the command.

Over standard input and output, the real output is taken away before anything else can write to it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import stat
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, BinaryIO, TextIO

from callgate._server_processes.protocol_streams import protocol_streams
from callgate._terminal_text import one_line, printable
from callgate.cli import _exit_codes as _exits
from callgate.cli._command_options import ServeOptions
from callgate.cli._console import say
from callgate.cli._error_advice import at_terminal
from callgate.cli._gateway_setup import OpenedGateway, config_of, describe_accepted, notes_of_files, open_gateway
from callgate.cli._interrupt_signals import Interrupts, interruptible
from callgate.cli._serve_reload import ConfigReload, terminal_of_process
from callgate.errors import UsageError
from callgate.gateway import serve_stdio
from callgate.gateway.config import GatewayConfig

__all__ = ["serve_clients"]

_LOOK_S = 1.0
"""How often the journal is checked."""
_FAILED_START_S = 1.0
"""Seconds in which a failed start is still reported after the client has gone."""
_REMEMBERED_WARNINGS = 1_000
_NO_RELOAD = (
    "SIGHUP is ignored, because the program was started so, for example with `nohup`: a changed configuration takes effect at the next"
    " start. To reload it while the gateway runs, use `setsid` or a service manager instead."
)
_COLLECTED = (20_000, 20, 50)
"""The thresholds of the garbage collector's generations."""


def serve_clients(options: ServeOptions) -> int:
    """Serve clients until the end; return the exit code."""
    if options.http is not None:
        with _show_warnings() as warnings:
            config = config_of(options)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                return runner.run(_serve_over_http(options, config, warnings))
    _refuse_files()
    with protocol_streams() as streams, redirect_stdout(sys.stderr), _show_warnings() as warnings:
        config = config_of(options)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve_over_stdio(options, config, warnings, streams))


async def _serve_over_stdio(options: ServeOptions, config: GatewayConfig, warnings: _Warnings, streams: tuple[BinaryIO, BinaryIO]) -> int:
    opened = open_gateway(config)
    if streams[0].isatty():
        say("An MCP client starts this command itself and speaks to it here. To serve clients on the network, add --http.", "yellow")
    serving = serve_stdio(opened.gateway, streams=streams)
    reload = ConfigReload(options, config, opened)
    starting = _start(config, opened, warnings, "standard input and output")
    return await _serve_until_ended(opened, _serve_during_start(serving, starting), reload)


async def _serve_over_http(options: ServeOptions, config: GatewayConfig, warnings: _Warnings) -> int:
    from callgate.cli._serve_http import Access, FirstAccess, create_app, listening, say_how_to_connect

    first = FirstAccess.of(config)
    opened = open_gateway(config)
    app = create_app(opened.gateway, config, first.tokens)
    reload = ConfigReload(options, config, opened, Access(first, opened.gateway, app))

    async def serve() -> None:
        async with listening(app, config) as url:
            say(f"Listening on {url} while the servers start.")
            say_how_to_connect(config.name, url, first.made_token)
            await _serve_during_start(asyncio.Event().wait(), _start(config, opened, warnings, url))

    return await _serve_until_ended(opened, serve(), reload)


async def _start(config: GatewayConfig, opened: OpenedGateway, warnings: _Warnings, where: str) -> None:
    await opened.gateway.start()
    _collect_less()
    _announce(config, opened, warnings, where)


async def _serve_during_start(serving: Coroutine[Any, Any, object], starting: Coroutine[Any, Any, None]) -> None:
    """Serve clients until the end, also while the servers start.

    Raises:
        UsageError: The servers cannot be started as they must be.
    """
    tasks = asyncio.create_task(serving), asyncio.create_task(starting)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            await asyncio.wait(tasks, timeout=_FAILED_START_S)
        if tasks[1].done():
            await tasks[1]
        await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve_until_ended(opened: OpenedGateway, serving: Coroutine[Any, Any, None], reload: ConfigReload) -> int:
    """Await `serving`, or until a signal comes that ends the command or the journal fails; then end the running calls, and return the exit
    code. SIGHUP reloads the configuration.
    """
    interrupts = Interrupts()
    terminal_is_gone = terminal_of_process()

    def take_signal(number: int) -> None:
        if number == signal.SIGHUP and not terminal_is_gone():
            reload.request()
        else:
            interrupts.terminate(number)

    reloading = asyncio.create_task(reload.run())
    with interruptible(lambda: interrupts.terminate(signal.SIGINT), take_signal):
        try:
            failure = await interrupts.unless(_serve_while_journal_works(opened, serving))
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)
            await opened.gateway.close()
    if not failure:
        return _exits.OK
    say(f"The journal takes nothing more: {failure}", "red")
    say("Without a record no call runs, so the gateway has ended. Start it again, or let a service manager do so.", "red")
    return _exits.FAILED


async def _serve_while_journal_works(opened: OpenedGateway, serving: Coroutine[Any, Any, None]) -> str:
    """Await `serving`, or until the journal takes nothing more; return why it does not, else an empty text."""
    journal, task = opened.engine.journal, asyncio.create_task(serving)
    try:
        while not task.done() and not journal.status().failure:
            await asyncio.wait((task,), timeout=_LOOK_S)
        if not task.done():
            return journal.status().failure
        await task
        return ""
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the faster event loop, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _collect_less() -> None:
    """Run the garbage collector less often, and not on objects of the start: it would take a tenth of the time of a call."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED)


def _refuse_files() -> None:
    for number, name in ((0, "input"), (1, "output")):
        mode = os.fstat(number).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)):
            raise UsageError(
                f"Standard {name} is not a pipe, so no client can speak to this gateway. Let a client start it, or serve with --http."
            )


def _announce(config: GatewayConfig, opened: OpenedGateway, warnings: _Warnings, where: str) -> None:
    """Print what is served, and the problems that no warning has reported yet."""
    tools = opened.engine.tools
    servers = sum(one.enabled for one in config.servers)
    for problem in (*tools.unavailable.values(), *tools.withdrawn.values()):
        if not warnings.have_shown(problem):
            say(printable(at_terminal(problem)), "yellow")
    for note in (*notes_of_files(config), *describe_accepted(config)):
        say(note, "dim")
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        say(_NO_RELOAD, "yellow")
    offered = len(tools.names())
    count = f"{offered} tool{'' if offered == 1 else 's'}, {servers} MCP server{'' if servers == 1 else 's'}"
    say(f"{one_line(config.name)}: {count}, on {where}. Journal: {opened.record.name or 'none'}")
    if not config.rules:
        say("There are no rules, so every valid call runs. Give some with --rules, or `rules` in the configuration.", "dim")


class _Warnings(logging.StreamHandler[TextIO]):
    """Writes the warnings of callgate to standard error, and remembers the latest."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self._latest = deque[str](maxlen=_REMEMBERED_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        self._latest.append(record.getMessage())
        super().emit(record)

    def have_shown(self, problem: str) -> bool:
        """Return whether one of the latest warnings contains this sentence."""
        return any(problem.removesuffix(".") in said for said in self._latest)


@contextmanager
def _show_warnings() -> Iterator[_Warnings]:
    """Write the warnings of callgate to standard error while the block runs."""
    handler, log = _Warnings(), logging.getLogger("callgate")
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
