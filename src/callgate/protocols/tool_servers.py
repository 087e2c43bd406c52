"""The protocol of tool servers: sources of tools outside of this process, whose tools may change while the engine runs.

The engine starts and closes its tool servers, and gives each a catalogue, to which the server offers its tools. Knows no implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from callgate._clock import Clock
from callgate._secret_redaction import RedactedLog
from callgate.protocols.runners import Execution
from callgate.tools.tool_declaration import Tool

__all__ = ["ReportsStatus", "RetriesStart", "ServerState", "ServerStatus", "ToolCatalogue", "ToolServer"]

ServerState = Literal["idle", "starting", "ready", "degraded", "backoff", "quarantined", "closed"]
"""ready: calls are sent. degraded: the server is silent, and new calls wait. backoff: it starts again soon. quarantined: it has failed too
often, and calls are refused for a while."""


class ServerStatus(Struct, frozen=True, kw_only=True):
    """What an engine knows of one of its tool servers at one moment."""

    name: str
    state: ServerState | Literal["unknown"]
    """`unknown`: the server does not report its state."""
    problem: str = ""
    """Why the server does not run, as a sentence; empty if it runs."""
    revision: str = ""
    """The revision of MCP that the server spoke last; empty for other servers, and before the first start."""
    tools: int = 0
    """How many tools the server offers."""
    restarts: int = 0
    """How often the server was started again with success."""
    missing_gated_tools: str = ""
    """A sentence that names the tools with `requires_approval` in its configuration that it did not list; empty if there are none."""


class ToolCatalogue(Protocol):
    """The engine's tools, for the tool servers of the engine."""

    @property
    def log(self) -> RedactedLog: ...
    @property
    def clock(self) -> Clock: ...

    def prepare(self, server: str, tools: Sequence[Tool]) -> None:
        """Prepare tools that will be offered next. Takes a millisecond for each; call it in a thread, so that it does not hold the loop."""
        ...

    def offer(self, server: str, tools: Sequence[Tool]) -> None:
        """Replace all tools of a server. Calls that already run are not affected.

        A tool whose name is taken by another server of the layer is offered as `SERVER.TOOL`. A tool that cannot be registered is
        withdrawn, with the reason.
        """
        ...

    def withdraw(self, server: str, reasons: Mapping[str, str]) -> None:
        """Replace the names of a server's tools that exist but cannot be called.

        A call of such a name is not started, and the model is told the reason.

        Args:
            reasons: Why, by the tool's name: the fact, the cause and the next step. A tool that is offered is removed.
        """
        ...

    def late(self, uid: str, execution: Execution) -> None:
        """Record an answer that arrived after its call had ended."""
        ...


class ToolServer(Protocol):
    """A source of tools outside of this process. Belongs to one engine."""

    name: str

    @property
    def layer(self) -> Literal["capability", "mcp"]:
        """The registry's layer of its tools."""
        ...

    async def start(self, catalogue: ToolCatalogue) -> None:
        """Start, and offer the first tools. Returns in bounded time, also if the server cannot be started.

        Raises:
            UsageError: The server cannot be started, and the engine cannot work without it.
        """
        ...

    async def close(self) -> None:
        """Stop, with all processes, in bounded time. Idempotent."""
        ...


@runtime_checkable
class ReportsStatus(Protocol):
    """A tool server that reports its state."""

    def status(self, tools: int) -> ServerStatus:
        """Return the state of the server.

        Args:
            tools: How many tools it offers, which the engine counts.
        """
        ...


@runtime_checkable
class RetriesStart(Protocol):
    """A tool server that can be started again at once after it has failed to start."""

    async def retry(self) -> None:
        """Start again now if the server waits for its restart; return when that has succeeded or failed."""
        ...
