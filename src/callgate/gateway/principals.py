"""Principals: on whose behalf the gateway makes calls, what they may use, and how much of it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, Literal

from callgate._option_checks import Count, NamedStruct

__all__ = ["EVERY", "LOCAL", "Principal"]

EVERY: Final = "*"
"""The pattern that all names have."""


class Principal(NamedStruct, frozen=True, kw_only=True):
    """Who uses the gateway: a person, a program or a team, known by a token."""

    name: str
    """The name in the journal, in rules and in every key of a cache, a session or an idempotency key."""
    role: Literal["client", "operator"] = "client"
    """An `operator` is also offered the approval queue as tools, for the calls of other principals."""
    tools: tuple[str, ...] = (EVERY,)
    """The tools to offer, as glob patterns of their names. Others do not exist for this principal."""
    servers: tuple[str, ...] | None = None
    """The MCP servers whose resources and prompts are offered, as glob patterns of their names. None: those that have a tool for this
    principal, and all servers if every tool is offered."""
    parallel: Count = 64
    """How many calls may run at the same time."""
    queued: Count = 256
    """How many more calls may wait. What is beyond is refused at once."""
    pending: Count = 100
    """How many of its calls may wait for a human's decision. One more is denied, so that it cannot hide the questions of others."""
    approves: bool = True
    """Whether the people behind this principal's client may answer the questions about its own calls. If False, only an operator may."""
    scopes: tuple[str, ...] | None = None
    """The scopes of the token with which a request is made. None: the token has no scopes, and none are required of it."""

    expires_at: float | None = None
    """When the token expires, in seconds since 1970; then streams that it has opened end. None: it does not."""

    @property
    def session_key(self) -> str:
        """The key of the sessions with servers that this principal's calls use; empty: shared by all that have no token."""
        return "" if self is LOCAL else self.name

    def may_use(self, tool: str) -> bool:
        """Return whether a tool is offered to this principal."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)


LOCAL = Principal(name="local")
"""The user at the other end of standard input and output."""
