"""What deliberate mode has planned for one turn, as plain data: it survives a wait for a human with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

__all__ = ["Exposed", "Match"]


class Match(Struct, frozen=True, kw_only=True):
    """Why a tool is offered."""

    tool: str
    phrase: str
    """The trigger, as it was declared."""
    source: Literal["tool", "operator", "follow_up", "always"]
    """Whose trigger matched: the tool's own, the operator's, the words that ask for a repeat; or it is `^`, which every message matches."""


class Exposed(Struct, frozen=True, kw_only=True):
    """The allowlist of one turn, and the reasons that are phrases."""

    allowed: frozenset[str]
    """Empty: the model is shown no tool, and every call is blocked."""
    matches: Mapping[str, Match]
    """By tool; a tool that is forced or retained has none."""
