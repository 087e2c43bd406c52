"""The servers of a configuration file and their accepted tools: a file that clients share, or a gateway's `gate.toml`."""

from __future__ import annotations

import shlex
from typing import Final

from callgate._unusable_paths import displayed
from callgate.gateway.config_file import read_gateway_servers
from callgate.mcp import AcceptedTools, ConfiguredServer, configured_servers
from callgate.mcp.config_files import accepted_file

__all__ = ["accepted_tools_of", "config_option", "is_gateway", "other_files", "servers_in"]

_DEFAULT: Final = ".mcp.json"


def servers_in(config: str) -> tuple[ConfiguredServer, ...]:
    """Return the servers of a configuration file.

    Raises:
        UsageError: It cannot be read.
    """
    return read_gateway_servers(config).servers if is_gateway(config) else configured_servers(config)


def config_option(config: str) -> str:
    """Return the option that names this file, with a leading space. Return an empty text for the default file."""
    return "" if config == _DEFAULT else f" --config {shlex.quote(config)}"


def other_files(config: str) -> str:
    """Return a sentence about the files whose servers a gateway has besides those of its own; empty if there are none.

    Raises:
        UsageError: The configuration file cannot be read.
    """
    others = read_gateway_servers(config).mcp_files if is_gateway(config) else ()
    return f"The servers of its mcp_files are in other files: use --config with {' or '.join(map(displayed, others))}." if others else ""


def accepted_tools_of(config: str) -> AcceptedTools:
    """Return the accepted tools that belong to a configuration file.

    Raises:
        UsageError: It cannot be read.
    """
    return AcceptedTools(read_gateway_servers(config).accepted if is_gateway(config) else accepted_file(config))


def is_gateway(config: str) -> bool:
    """Return whether this is the configuration of a gateway, and not a file that clients share."""
    return config.endswith(".toml")
