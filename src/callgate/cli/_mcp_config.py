"""The servers of a configuration file and their accepted tools: of a file that clients share, or of a gateway's `gate.toml`."""

from __future__ import annotations

from callgate.gateway.config_file import read_gateway_servers
from callgate.mcp import AcceptedTools, ConfiguredServer, configured_servers
from callgate.mcp.config_files import accepted_file

__all__ = ["accepted_tools_of", "servers_in"]


def servers_in(config: str) -> tuple[ConfiguredServer, ...]:
    """Return the servers of a configuration file.

    Raises:
        UsageError: It cannot be read.
    """
    return read_gateway_servers(config)[0] if _is_gateway(config) else configured_servers(config)


def accepted_tools_of(config: str) -> AcceptedTools:
    """Return the accepted tools that belong to a configuration file.

    Raises:
        UsageError: It cannot be read.
    """
    return AcceptedTools(read_gateway_servers(config)[1] if _is_gateway(config) else accepted_file(config))


def _is_gateway(config: str) -> bool:
    return config.endswith(".toml")
