"""Which scopes a token needs to call a tool. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from callgate.gateway._server_features.operator_tools import OPERATOR_TOOLS
from callgate.tools import ToolRegistry

__all__ = ["ToolScopes"]


class ToolScopes:
    """The scopes of the tools of one gateway.

    Args:
        patterns: The scopes by glob patterns of tools' names.
        registry: Knows the tools and their other names.
    """

    def __init__(self, patterns: Mapping[str, Sequence[str]], registry: ToolRegistry) -> None:
        self._patterns, self._registry = patterns, registry

    def of(self, name: str) -> tuple[str, ...]:
        """Return the scopes that a call by this name needs.

        A name that no tool has needs all of them, because the engine may still find the tool that is meant.
        """
        bound = self._registry.get(name)
        known = bound.name if bound is not None else name if name in OPERATOR_TOOLS else None
        fits = (scopes for pattern, scopes in self._patterns.items() if known is None or fnmatchcase(known, pattern))
        return tuple(dict.fromkeys(scope for scopes in fits for scope in scopes))
