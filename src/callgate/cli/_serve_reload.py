"""Reload the configuration of a running `callgate serve` on SIGHUP: apply every difference, or none.

A reload adds, removes and restarts servers, and replaces rules and principals. The old servers keep serving meanwhile. The file is read as
soon as the signal arrives, even while an earlier reload is under way. Until the reload has succeeded or failed, a call runs only if the old
and the new rules allow it, and a principal is served only if both files name it. A failed reload is undone and reported; the sessions,
calls and tasks of a principal that the rejected file removes have ended by then. A server that does not start fails the reload only if it
is required; otherwise the report names it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from callgate._terminal_text import one_line, printable
from callgate.cli._command_options import ServeOptions
from callgate.cli._console import say
from callgate.cli._error_advice import at_terminal
from callgate.cli._gateway_setup import OpenedGateway, config_of, notes_of_files, rules_of_gateway, servers_to_start
from callgate.errors import UsageError
from callgate.gateway._config.config_changes import ServerChange, ServerSettings, loses_access, refuse_restart, server_change, settings_of
from callgate.gateway.config import GatewayConfig
from callgate.gateway.tokens import Authenticator
from callgate.mcp import McpServer
from callgate.plugins import Plugin
from callgate.policy import Rules

__all__ = ["ChangingAccess", "ConfigReload", "ConfiguredAccess", "terminal_of_process"]

log = logging.getLogger("callgate")
_TERMINAL = "/dev/tty"
_SHUT_OUT = "Principals who are not in the refused file are served again; their sessions, calls and tasks have ended."
_STILL_SERVED = "Principals who are not in the refused file are still served."


class ConfiguredAccess(Struct, frozen=True, kw_only=True):
    """Who may use the gateway with a configuration."""

    config: GatewayConfig
    known: Authenticator
    key: str = ""
    """The issuer's public key, which is read again from its file; empty if the keys are fetched."""


class ChangingAccess(Protocol):
    """Replaces who may use the gateway."""

    def read(self, config: GatewayConfig) -> ConfiguredAccess:
        """Return who may use the gateway with a configuration. Changes nothing.

        Raises:
            UsageError: No principal could use it, or a key cannot be read.
        """
        ...

    async def use(self, in_use: ConfiguredAccess, *others: ConfiguredAccess) -> None:
        """Serve only principals that all of these configurations allow."""
        ...


class _Read(Struct, frozen=True, kw_only=True):
    """A configuration with all that was read for it."""

    config: GatewayConfig
    rules: tuple[Rules, ...]
    servers: tuple[McpServer | Plugin, ...]
    settings: ServerSettings
    access: ConfiguredAccess | None


class ConfigReload:
    """The configuration of a running gateway, which can be read again.

    Args:
        config: The configuration that the gateway has.
        access: Replaces who may use the gateway; None over standard input and output, where clients have no token.
    """

    def __init__(self, options: ServeOptions, config: GatewayConfig, opened: OpenedGateway, access: ChangingAccess | None = None) -> None:
        self._options = options
        self._opened = opened
        self._access = access
        self._in_use = self._with_parts(config, opened.rules.in_use)
        self._changing_to: _Read | None = None
        self._next: _Read | None = None
        self._requested, self._has_next = asyncio.Event(), asyncio.Event()

    def request(self) -> None:
        """Request a reload. If several files are read during a reload, only the last is applied."""
        self._requested.set()

    async def run(self) -> None:
        """Reload at each request, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_on_request())
            tasks.create_task(self._apply_in_order())

    async def _read_on_request(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            with self._report_refusals():
                self._next = self._read()
                self._has_next.set()
                await self._restrict_to_common()

    async def _apply_in_order(self) -> None:
        while True:
            await self._has_next.wait()
            self._has_next.clear()
            with self._report_refusals():
                await self._opened.gateway.start()
                new, self._next = self._next, None
                if new is not None:
                    await self._change_to(new)

    def _read(self) -> _Read:
        """Return what the file says now.

        Raises:
            UsageError: The configuration cannot be used.
        """
        config = config_of(self._options)
        try:
            refuse_restart(self._in_use.config, config)
            return self._with_parts(config, rules_of_gateway(config))
        except UsageError as error:
            raise self._explain_refusal(error, config, _STILL_SERVED) from error

    def _with_parts(self, config: GatewayConfig, rules: tuple[Rules, ...]) -> _Read:
        servers = servers_to_start(config)
        access = self._access.read(config) if self._access is not None else None
        return _Read(config=config, rules=rules, servers=servers, settings=settings_of(servers), access=access)

    async def _restrict_to_common(self) -> None:
        """Allow only the calls and principals that the configuration in use allows, and each one that may replace it."""
        others = [one for one in (self._changing_to, self._next) if one is not None]
        checked = self._changing_to.rules if self._changing_to is not None else None
        self._opened.rules.narrow(*(rules for one in others for rules in one.rules), checked=checked)
        if self._access is not None and self._in_use.access is not None:
            await self._access.use(self._in_use.access, *(one.access for one in others if one.access is not None))

    async def _change_to(self, new: _Read) -> None:
        """Change the gateway to a configuration, and say what was done to its servers.

        Raises:
            UsageError: The configuration cannot be used. What was changed already is as before.
        """
        change = server_change(self._in_use.settings, new.settings, new.servers)
        noted = set(notes_of_files(self._in_use.config))
        self._changing_to = new
        try:
            await self._restrict_to_common()
            await self._opened.gateway.change_servers(add=(*change.added, *change.changed), remove=change.ended)
            self._in_use = new
            self._opened.rules.use(*new.rules)
        except UsageError as error:
            raise self._explain_refusal(error, new.config, _SHUT_OUT) from error
        finally:
            self._changing_to = None
            await self._restrict_to_common()
        self._opened.gateway.tell_tools_changed()
        for note in notes_of_files(new.config):
            if note not in noted:
                say(note, "yellow")
        failed = self._describe_failures(change)
        say(f"The configuration was reloaded. {_describe(change)}{failed}", "yellow" if failed else "green")
        self._opened.gateway.observed.count_reload(succeeded=True)

    def _explain_refusal(self, error: UsageError, refused: GatewayConfig, removed: str) -> UsageError:
        """Return the error, with what it means for principals whom the refused file removes, if it removes any."""
        return UsageError(f"{error} {removed}") if loses_access(self._in_use.config, refused) else error

    @contextmanager
    def _report_refusals(self) -> Iterator[None]:
        """Report an error of the block as a refused reload, with its reason."""
        observed, in_use = self._opened.gateway.observed, "The configuration was not reloaded, and the one before is in use"
        try:
            yield
        except UsageError as error:
            say(f"{in_use}: {error}", "red")
        except Exception as error:
            log.exception("The configuration could not be reloaded")
            say(f"{in_use} ({type(error).__name__}; see the log).", "red")
        else:
            return
        observed.count_reload(succeeded=False)

    def _describe_failures(self, change: ServerChange) -> str:
        """Describe the servers of a change that have not started, and why; empty if all have."""
        started = {one.name for one in (*change.added, *change.changed)}
        problems = [one.problem for one in self._opened.engine.servers_status() if one.name in started and one.problem]
        if not problems:
            return ""
        text = " ".join(f"{printable(at_terminal(problem)).removesuffix('.')}." for problem in problems)
        return f" {text} The new settings count: tools of a server that has not started answer with the reason."


def terminal_of_process() -> Callable[[], bool]:
    """Return a function that returns whether the current terminal of this process is gone."""
    had_one = _has_terminal()
    return lambda: had_one and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _describe(change: ServerChange) -> str:
    parts = {
        "added": [one.name for one in change.added],
        "removed": change.removed,
        "started again": [one.name for one in change.changed],
    }
    lines = [f"{what}: {', '.join(map(one_line, names))}" for what, names in parts.items() if names]
    return f"Servers {'; '.join(lines)}." if lines else "No server has changed; rules and principals were read again."
