"""Start MCP servers once, and look at the tools that they offer.

The same connection and the same checks as an engine's, but nothing can be called, and what is accepted makes no
difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from callgate._clock import Clock, SystemClock
from callgate._secret_redaction import RedactedLog
from callgate.calls import Effect
from callgate.cli._error_advice import at_terminal
from callgate.errors import CallgateError, UsageError
from callgate.mcp import ConfiguredServer, Definition, McpServer
from callgate.mcp._supervisor import SupervisedServer
from callgate.protocols import Execution
from callgate.tools import Tool, ToolRegistry

__all__ = ["ServerLook", "look_at", "look_at_all"]


class ServerLook(Struct, frozen=True, kw_only=True):
    """What a server showed when it was started once."""

    definitions: tuple[Definition, ...] = ()
    """Its tools as it describes them."""
    unusable: Mapping[str, str] = {}
    """Tools that cannot be registered, each with the reason."""
    failure: str = ""
    """Why it could not be started; empty if it could."""
    seconds: float = 0.0
    revision: str = ""
    """The revision of the protocol that was agreed on."""
    era: str = ""
    program: str = ""
    """The name and the version that the server gives itself."""


class _SeenDefinitions:
    """Keeps the definitions that a server sends, and refuses none."""

    def __init__(self) -> None:
        self.definitions: tuple[Definition, ...] = ()

    def refusals(self, server: str, definitions: Sequence[Definition]) -> Mapping[str, str]:
        self.definitions = tuple(definitions)
        return {}

    def effects(self, server: str) -> Mapping[str, Effect]:
        return {}


class _SeenTools:
    """A catalogue that keeps what a server offers, for nobody to call."""

    log = RedactedLog(None)
    clock: Clock = SystemClock()

    def __init__(self) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.withdrawn: dict[str, str] = {}

    def offer(self, server: str, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)

    def withdraw(self, server: str, reasons: Mapping[str, str]) -> None:
        self.withdrawn = dict(reasons)

    def late(self, uid: str, execution: Execution) -> None:
        """Nothing is called, so no answer can be late."""


async def look_at_all(servers: Iterable[ConfiguredServer]) -> list[ServerLook]:
    """Look at several servers at the same time."""
    return await asyncio.gather(*(look_at(one.server) for one in servers))


async def look_at(server: McpServer) -> ServerLook:
    """Start the server, get its tools, and end it."""
    seen, catalogue = _SeenDefinitions(), _SeenTools()
    supervised = SupervisedServer(replace(server, accepted=seen, required=True, effects={}, options={}, tools=None))
    begun = catalogue.clock.monotonic()
    try:
        await supervised.start(catalogue)
    except CallgateError as error:
        return ServerLook(failure=at_terminal(str(error)), seconds=catalogue.clock.monotonic() - begun)
    finally:
        seconds = catalogue.clock.monotonic() - begun
        await supervised.close()
    return ServerLook(definitions=seen.definitions, unusable=_unusable(catalogue), seconds=seconds)


def _unusable(catalogue: _SeenTools) -> dict[str, str]:
    found = dict(catalogue.withdrawn)
    for tool in catalogue.tools:
        try:
            ToolRegistry([tool])
        except UsageError as error:
            found[tool.name] = str(error)
    return found
