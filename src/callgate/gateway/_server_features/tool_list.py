"""The definitions of the engine's tools, as MCP clients are told of them.

The definition of an MCP server's tool is passed on as the server sent it, under the name that the engine gave it. For other tools, one is
made. Lists are made once for each set of tools, except if some tools are only for some principals. Pure.

The SDKs of clients of the handshake era refuse a whole list if one tool has an output schema of another type than `object`, which servers
of the stateless era may send. Such a schema is left out for them: around another result, its references would no longer fit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._server_features.operator_tools import DEFINITIONS, OPERATOR_TOOLS
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._http_headers import ArgumentHeaders
from callgate.mcp._revisions import Era, era_of
from callgate.mcp.mcp_tool import McpTool
from callgate.protocols import ServerStatus
from callgate.tools.registry import BoundTool, ToolRegistry

__all__ = ["ToolLists"]


class ToolLists:
    """The definitions of the tools of one engine, for each principal.

    Args:
        statuses: Returns the state of each server, with the revision that it speaks.
    """

    def __init__(self, tools: ToolRegistry, statuses: Callable[[], Iterable[ServerStatus]], redaction: ClientRedaction) -> None:
        self._tools = tools
        self._statuses = statuses
        self._redaction = redaction
        self._visible: object = None
        self._lists: dict[tuple[str, tuple[str, ...], Era], list[Message]] = {}
        self._headers = ArgumentHeaders()
        self._differ = False
        """Whether some tools are listed only for some principals."""

    def of(self, principal: Principal, era: Era) -> list[Message]:
        """Return the definitions of the tools that a principal may use, for a client of this era, in the order of their registration.

        Those of the approval queue come last, for operators. No other tool is listed under one of their names.
        """
        self._renew()
        if self._differ:
            return self._make(principal, era)
        key = principal.role, principal.tools, era
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = self._make(principal, era)
        return found

    def _make(self, principal: Principal, era: Era) -> list[Message]:
        newer = {status.name for status in self._statuses() if era == "handshake" and era_of(status.revision) == "stateless"}
        offered = [
            dict(self._redaction.clean(_readable(tool, newer)))
            for tool in self._tools
            if principal.may_use(tool.name) and tool.name not in OPERATOR_TOOLS and _is_for(tool, principal)
        ]
        return [*offered, *DEFINITIONS] if principal.role == "operator" else offered

    def argument_headers(self) -> ArgumentHeaders:
        """Return which arguments of the tools are repeated as headers over HTTP."""
        self._renew()
        return self._headers

    def _renew(self) -> None:
        if self._tools.visible is not self._visible:
            self._visible, self._lists, self._headers = self._tools.visible, {}, ArgumentHeaders()
            self._headers.read_tools([definition(tool) for tool in self._tools])
            self._differ = any(isinstance(one.tool, McpTool) and one.tool.keys is not None for one in self._tools)


def _is_for(bound: BoundTool, principal: Principal) -> bool:
    """Return whether a tool is listed for a principal: for all, unless its server shows it only in the sessions of some."""
    keys = bound.tool.keys if isinstance(bound.tool, McpTool) else None
    return keys is None or principal.session_key in keys


def _readable(bound: BoundTool, newer: Container[str]) -> Message:
    """Return the definition of a tool without what the client's SDK would refuse, if its server is of a newer era than the client."""
    sent = definition(bound)
    output = sent.get("outputSchema")
    if output is None or not (isinstance(bound.tool, McpTool) and bound.tool.server in newer):
        return sent
    if isinstance(output, dict) and output.get("type") == "object":
        return sent
    return {key: value for key, value in sent.items() if key != "outputSchema"}


def definition(bound: BoundTool) -> Message:
    """Return the definition of a tool for MCP clients."""
    tool = bound.tool
    if isinstance(tool, McpTool):
        return {key: bound.name if key == "name" else value for key, value in tool.definition.items()}
    made: dict[str, Any] = {"name": bound.name, "description": bound.description, "inputSchema": bound.schema.source}
    output = bound.output.source if bound.output is not None else None
    if isinstance(output, dict) and output.get("type") == "object":
        made["outputSchema"] = output
    return made | {"annotations": _hints(bound)}


def _hints(bound: BoundTool) -> dict[str, bool]:
    """Return the hints about the effect that the tool's author has declared."""
    if bound.effect == "none":
        return {"readOnlyHint": True}
    return {"readOnlyHint": False, "idempotentHint": bound.effect == "idempotent"}
