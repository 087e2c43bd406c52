"""Read the configuration of a running `callgate serve` again on SIGHUP, and change what differs: all of it, or nothing.

Servers are added, removed and started again, and rules and principals replaced. While that takes, the old servers serve, and the old rules
count beside the new ones, so that no call runs that either of them forbids. What fails is undone, and said. A server that does not start is
no failure, as at the start of the gateway, unless it is required; it is named.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Protocol

from callgate._terminal_text import one_line, printable
from callgate.cli._command_options import ServeOptions
from callgate.cli._console import say
from callgate.cli._error_advice import at_terminal
from callgate.cli._gateway_setup import OpenedGateway, config_of, rules_of_gateway, servers_to_start
from callgate.errors import UsageError
from callgate.gateway._config_changes import ServerChange, refuse_restart, server_change, settings_of
from callgate.gateway.config import GatewayConfig
from callgate.gateway.tokens import Authenticator

__all__ = ["ConfigReload", "NewAccess", "terminal_of_process"]

log = logging.getLogger("callgate")
_TERMINAL = "/dev/tty"


class NewAccess(Protocol):
    """Replaces who may use the gateway, in two steps: the first can fail, and changes nothing."""

    def read(self, config: GatewayConfig) -> Authenticator | None:
        """Return who may use the gateway with a configuration; None if nobody is configured, as before.

        Raises:
            UsageError: Nobody could use it, or a key cannot be read.
        """
        ...

    async def use(self, known: Authenticator | None, config: GatewayConfig) -> None:
        """Let only these use the gateway from now on."""
        ...

    def undo(self) -> None:
        """Let those use the gateway again who could before the last `use`."""
        ...


class ConfigReload:
    """The configuration of a running gateway, which can be read again.

    Args:
        config: The configuration that the gateway has.
        access: Replaces who may use the gateway; None over standard input and output, where nobody is asked for a token.
    """

    def __init__(self, options: ServeOptions, config: GatewayConfig, opened: OpenedGateway, access: NewAccess | None = None) -> None:
        self._options = options
        self._config = config
        self._opened = opened
        self._access = access
        self._settings = settings_of(servers_to_start(config))
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Read the configuration again, soon. Requests during a reload cause one more."""
        self._requested.set()

    async def run(self) -> None:
        """Reload at each request, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            await self._reload()

    async def _reload(self) -> None:
        observed = self._opened.gateway.observed
        try:
            done = await self._apply(config_of(self._options))
        except UsageError as error:
            say(f"The configuration was not reloaded, and the one before is in use: {error}", "red")
        except Exception as error:
            log.exception("The configuration could not be reloaded")
            say(f"The configuration was not reloaded, and the one before is in use ({type(error).__name__}; see the log).", "red")
        else:
            failed = self._failed(done)
            say(f"The configuration was reloaded. {_described(done)}{failed}", "yellow" if failed else "green")
            observed.reloaded(succeeded=True)
            return
        observed.reloaded(succeeded=False)

    async def _apply(self, config: GatewayConfig) -> ServerChange:
        """Change the gateway to a configuration; return what was done to its servers.

        Raises:
            UsageError: The configuration cannot be used. What was changed already is as before.
        """
        await self._opened.gateway.start()
        refuse_restart(self._config, config)
        rules, servers = rules_of_gateway(config), servers_to_start(config)
        known = self._access.read(config) if self._access is not None else None
        settings = settings_of(servers)
        change = server_change(self._settings, settings, servers)
        current = self._opened.rules
        current.begin_change(*rules)
        if self._access is not None:  # before servers are waited for, so that nobody who is removed goes on meanwhile
            await self._access.use(known, config)
        try:
            await self._opened.gateway.change_servers(add=(*change.added, *change.changed), remove=change.ended)
        except Exception:
            current.undo_change()
            if self._access is not None:
                self._access.undo()
            raise
        finally:
            current.end_change()
        self._opened.gateway.tell_tools_changed()
        self._config, self._settings = config, settings
        return change

    def _failed(self, change: ServerChange) -> str:
        """Return which servers of a change have not started, and why; empty if all have."""
        started = {one.name for one in (*change.added, *change.changed)}
        problems = [one.problem for one in self._opened.engine.servers_status() if one.name in started and one.problem]
        if not problems:
            return ""
        told = " ".join(f"{printable(at_terminal(problem)).removesuffix('.')}." for problem in problems)
        return f" {told} The new settings count: tools of a server that has not started answer with the reason."


def terminal_of_process() -> Callable[[], bool]:
    """Return a function that tells whether the terminal that this process has now is gone."""
    had_one = _has_terminal()
    return lambda: had_one and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _described(change: ServerChange) -> str:
    parts = {
        "added": [one.name for one in change.added],
        "removed": change.removed,
        "started again": [one.name for one in change.changed],
    }
    told = [f"{what}: {', '.join(map(one_line, names))}" for what, names in parts.items() if names]
    return f"Servers {'; '.join(told)}." if told else "No server has changed; rules and principals were read again."
