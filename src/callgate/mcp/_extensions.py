"""The extensions of MCP that callgate knows. Pure.

Sources: SEP-2133; MCP Apps 2026-01-26; extension io.modelcontextprotocol/tasks, 2026-07-28.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PASSED_EXTENSIONS", "TASKS", "passed_extensions"]

_PREFIX = "io.modelcontextprotocol/"
TASKS = f"{_PREFIX}tasks"
"""The extension by which a server may answer a call with a task. It is agreed on for each hop."""
PASSED_EXTENSIONS: Mapping[str, Mapping[str, Any]] = {f"{_PREFIX}ui": {"mimeTypes": ["text/html;profile=mcp-app"]}, f"{_PREFIX}skills": {}}
"""The extensions that a gateway passes on, because they consist of tools, resources and their fields; with what a client declares."""


def passed_extensions(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extensions among a client's or a server's capabilities that a gateway passes on."""
    declared = capabilities.get("extensions")
    if not isinstance(declared, dict):
        return {}
    return {name: settings for name, settings in declared.items() if name in PASSED_EXTENSIONS and isinstance(settings, dict)}
