"""Passages of a memory with their origin, queries for them, and the protocol of their store.

`PassageStore` can be replaced, for example by a vector store. `PassageQuery.admits` defines the filters of a query for every store. Pure;
knows nothing of journals, files or tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

__all__ = ["FoundPassage", "Passage", "PassageKind", "PassageQuery", "PassageStore"]

PassageKind = Literal["note", "call", "file"]
"""`note`: stored on request. `call`: the result of a call. `file`: a piece of a file that a call wrote."""


class Passage(Struct, frozen=True, kw_only=True):
    """One redacted piece of text."""

    origin: str
    """The id of the note, call or file that the passage is from. The passages of one origin are replaced together."""
    kind: PassageKind
    text: str
    at_ns: int
    """The time of the note, call or write, UTC nanoseconds."""
    principal: str = ""
    """The owner of the passage."""
    actor: str = ""
    conversation: str = ""
    run: str = ""
    call: str = ""
    """The uid of the call."""
    tool: str = ""
    workspace: str = ""
    """The workspace of the call."""
    path: str = ""
    """For a piece of a file: its path, relative to the workspace."""
    line: int = 0
    """For a piece of a file: its first line, from 1."""
    stamp: str = ""
    """For a piece of a file: the state of the file when it was read."""
    tags: tuple[str, ...] = ()
    redacted: bool = False
    """For a piece of a file: whether it was redacted. If so, only a memory that redacts reads the file again."""


class PassageQuery(Struct, frozen=True, kw_only=True):
    """Selects passages. `principal` always restricts the selection; other filters restrict it if given."""

    text: str
    """Words in any order. A word may be the beginning of a longer word. There is no query syntax."""
    principal: str
    """The owner of the passages; no others are searched."""
    kinds: tuple[PassageKind, ...] = ()
    actor: str | None = None
    conversation: str | None = None
    run: str | None = None
    tool: str | None = None
    workspace: str | None = None
    """For pieces of files: only files in this workspace."""
    since_ns: int | None = None
    """The earliest time of a passage, UTC nanoseconds."""
    until_ns: int | None = None
    """The time before which a passage must be, UTC nanoseconds."""
    limit: int = 10

    def admits(self, passage: Passage) -> bool:
        """Return whether the passage passes the filters. Does not compare the words of `text`."""
        return (
            passage.principal == self.principal
            and (not self.kinds or passage.kind in self.kinds)
            and self.actor in (None, passage.actor)
            and self.conversation in (None, passage.conversation)
            and self.run in (None, passage.run)
            and self.tool in (None, passage.tool)
            and (self.workspace is None or passage.kind != "file" or passage.workspace == self.workspace)
            and (self.since_ns is None or passage.at_ns >= self.since_ns)
            and (self.until_ns is None or passage.at_ns < self.until_ns)
        )


class FoundPassage(Struct, frozen=True, kw_only=True):
    """A passage that matches a query."""

    passage: Passage
    snippet: str
    """The best matching part of the passage's text; `…` marks omissions."""
    score: float
    """Higher is better; comparable only within one answer."""


class PassageStore(Protocol):
    """Stores and searches passages. Called from threads: one call at a time for writes, several for searches."""

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        """Replace all passages of each origin in one transaction; an origin without passages is deleted."""
        ...

    def of(self, origin: str) -> list[Passage]:
        """Return the passages of an origin, in order."""
        ...

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        """Return the passages that contain any of the words, best first.

        Passages with equal scores are sorted newest first.
        """
        ...

    def files(self, workspace: str) -> dict[str, str]:
        """Return the stored files of a workspace as a mapping from path to stamp."""
        ...

    def count(self, kind: PassageKind, principal: str | None = None) -> int:
        """Return the number of passages of one principal, or of all principals if none is given."""
        ...

    def trim(self, kind: PassageKind, principal: str, most: int) -> int:
        """Delete the oldest passages until `most` are left; return how many were deleted."""
        ...

    def close(self) -> None:
        """Close the store. Idempotent."""
        ...
