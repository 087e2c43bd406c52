"""`NarrowedTokens`: accept a token only if several configurations accept it, and allow only what all of them allow.

Used while a configuration is reloaded: a principal that the new file removes is refused at once, and one that it adds is accepted when the
reload has succeeded. Whether one glob pattern includes another is decided from the patterns alone; a pattern for which that is not certain
allows nothing. Knows nothing of files and of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from msgspec.structs import replace

from callgate.gateway.principals import EVERY, Principal
from callgate.gateway.tokens import Authenticator

__all__ = ["NarrowedTokens", "narrow"]

_SPECIAL = "*?["


class NarrowedTokens:
    """Tokens that stand for the same principal in each of several authenticators, which then may do what all of them say."""

    def __init__(self, *kinds: Authenticator) -> None:
        self._kinds = kinds

    async def principal_of(self, token: str) -> Principal | None:
        found: Principal | None = None
        for kind in self._kinds:
            principal = await kind.principal_of(token)
            if principal is None or (found is not None and found.name != principal.name):
                return None
            found = principal if found is None else narrow(found, principal)
        return found


def narrow(one: Principal, other: Principal) -> Principal:
    """Return a principal that may do what both may; the first itself if they are equal."""
    if one == other:
        return one
    return replace(
        one,
        role=one.role if one.role == other.role else "client",
        tools=_in_both(one.tools, other.tools),
        servers=_servers_in_both(one, other),
        parallel=min(one.parallel, other.parallel),
        queued=min(one.queued, other.queued),
        pending=min(one.pending, other.pending),
        approves=one.approves and other.approves,
    )


def _servers_in_both(one: Principal, other: Principal) -> tuple[str, ...] | None:
    if one.servers is None and other.servers is None:
        return None  # those that have one of the tools in both
    return _in_both(_server_patterns(one), _server_patterns(other))


def _server_patterns(principal: Principal) -> tuple[str, ...]:
    """Return patterns that match only servers that are offered."""
    if principal.servers is not None:
        return principal.servers
    return (EVERY,) if EVERY in principal.tools else ()


def _in_both(some: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Return those patterns of each list that the other list certainly includes."""
    kept = [*(one for one in some if _includes(others, one)), *(one for one in others if _includes(some, one))]
    return tuple(dict.fromkeys(kept))


def _includes(wider: Sequence[str], pattern: str) -> bool:
    """Return whether each name that matches this pattern certainly matches one of the others."""
    beginning = "".join(takewhile(lambda char: char not in _SPECIAL, pattern))
    return any(
        one == pattern or (fnmatchcase(pattern, one) if beginning == pattern else _is_prefix(one) and beginning.startswith(one[:-1]))
        for one in wider
    )


def _is_prefix(pattern: str) -> bool:
    return pattern.endswith(EVERY) and not any(char in _SPECIAL for char in pattern[:-1])
