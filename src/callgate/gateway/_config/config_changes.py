"""Compare two configurations of a gateway: what can change while it runs, and what needs a restart. Starts and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple

from callgate._terminal_text import one_line
from callgate._unusable_paths import displayed
from callgate.errors import UsageError
from callgate.gateway.config import GatewayConfig
from callgate.gateway.principals import LOCAL
from callgate.mcp import AcceptedTools, McpServer
from callgate.plugins import Plugin

__all__ = ["ServerChange", "ServerSettings", "keeps_access", "loses_access", "refuse_restart", "server_change", "settings_of"]

_AFTER_RESTART = {
    "name": "name",
    "instructions": "instructions",
    "journal": "journal",
    "timeout_s": "timeout_s",
    "tools": "tools",
    "secrets": "redact_env",
    "workspace": "workspace",
    "undo": "undo",
    "http": "[http]",
    "replicas": "[replicas]",
    "tasks": "[tasks]",
    "jwt": "[jwt]",
}
"""The keys of the file that only a restart changes, by the field of `GatewayConfig`."""

ServerSettings = Mapping[str, tuple[object, ...]]
"""All settings of each server, with its accepted tools, by the server's name."""


class ServerChange(Struct, frozen=True, kw_only=True):
    """The servers that a new configuration adds, removes and starts again."""

    added: tuple[McpServer | Plugin, ...]
    removed: tuple[str, ...]
    changed: tuple[McpServer | Plugin, ...]

    @property
    def ended(self) -> tuple[str, ...]:
        """The servers that have to be ended: those that are removed, and those that are started again."""
        return (*self.removed, *(one.name for one in self.changed))


def refuse_restart(before: GatewayConfig, after: GatewayConfig) -> None:
    """Refuse a configuration that cannot be used without a restart.

    Raises:
        UsageError: A key has changed that is read at the start only, or the file of accepted tools is gone.
    """
    keys = [key for field, key in _AFTER_RESTART.items() if getattr(before, field) != getattr(after, field)]
    if keys:
        raise UsageError(f"{', '.join(keys)} cannot change while the gateway runs. Restart it, or restore what was there.")
    _refuse_unpinned(before, after)


def _refuse_unpinned(before: GatewayConfig, after: GatewayConfig) -> None:
    """Refuse a configuration without accepted tools for a server that has them now: a file that is lost must not let changed tools run."""
    pinned = {one.server.name: one.server.accepted for one in before.servers if one.enabled and one.server.accepted is not None}
    for one in after.servers:
        if one.enabled and one.server.accepted is None and one.server.name in pinned:
            file = pinned[one.server.name]
            named = displayed(Path(file)) if isinstance(file, (str, os.PathLike)) else "The file"
            what = "is no longer named" if isinstance(file, (str, os.PathLike)) and os.path.exists(file) else "is gone"
            raise UsageError(
                f"{named}, by which the tools of '{one_line(one.server.name)}' are accepted, {what}, and without it they would run unseen."
                " Restore it; to run them without accepted tools, restart the gateway."
            )


def settings_of(servers: tuple[McpServer | Plugin, ...]) -> ServerSettings:
    """Return all settings of these servers.

    Raises:
        UsageError: A file of accepted tools cannot be read.
    """
    return {one.name: (type(one), *astuple(one), _read_accepted(one)) for one in servers}


def server_change(before: ServerSettings, after: ServerSettings, servers: tuple[McpServer | Plugin, ...]) -> ServerChange:
    """Return the changes after which the servers run as in `after`.

    Args:
        servers: The servers of `after`.
    """
    return ServerChange(
        added=tuple(one for one in servers if one.name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(one for one in servers if one.name in before and before[one.name] != after[one.name]),
    )


def keeps_access(principal: str, before: GatewayConfig, after: GatewayConfig) -> bool:
    """Return whether the requests and sessions of a principal, given by name, may continue.

    Whom only the issuer of tokens knows keeps access, because each request is checked.
    """
    if principal in (one.principal.name for one in after.principals):
        return True
    was_configured = principal in (one.principal.name for one in before.principals)
    return after.jwt is not None and not was_configured


def loses_access(before: GatewayConfig, after: GatewayConfig) -> bool:
    """Return whether anybody who is configured in `before`, or who has the token that was made for it, has no access in `after`."""
    known = [one.principal.name for one in before.principals]
    return not all(keeps_access(name, before, after) for name in known or ([LOCAL.name] if before.jwt is None else []))


def _read_accepted(server: McpServer | Plugin) -> object:
    given = server.accepted if isinstance(server, McpServer) else None
    if not isinstance(given, (str, os.PathLike)):
        return None
    accepted = AcceptedTools(given)
    tools = {name: (one.hash, one.effect) for name, one in accepted.tools(server.name).items()}
    return tools, accepted.instructions(server.name)
