"""What a memory holds: passages of text that can be found again, each with where it comes from, and the questions to them.

`PassageStore` is what others may plug in, for instance a vector store; `PassageQuery.admits` is the meaning of a question's filters, and
every store has to come to the same. Pure; knows nothing of journals, files or tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

__all__ = ["FoundPassage", "Passage", "PassageKind", "PassageQuery", "PassageStore"]

PassageKind = Literal["note", "call", "file"]
"""`note`: somebody asked for it to be remembered. `call`: what a call came to. `file`: a piece of a file that a call wrote."""


class Passage(Struct, frozen=True, kw_only=True):
    """One piece of text, without secrets."""

    origin: str
    """What it is a piece of. What is kept of one origin is replaced together."""
    kind: PassageKind
    text: str
    at_ns: int
    """When it was said, called or written, UTC nanoseconds."""
    principal: str = ""
    """Whose memory it is."""
    actor: str = ""
    conversation: str = ""
    run: str = ""
    call: str = ""
    """The uid of the call that it comes from."""
    tool: str = ""
    workspace: str = ""
    """The root folder that the call worked in."""
    path: str = ""
    """Of a file's piece: the file, below that folder."""
    line: int = 0
    """Of a file's piece: where it begins, from 1."""
    stamp: str = ""
    """Of a file's piece: which state of the file this was."""
    tags: tuple[str, ...] = ()
    redacted: bool = False
    """Of a file's piece: secrets were taken out. Only who can do that reads the file again."""


class PassageQuery(Struct, frozen=True, kw_only=True):
    """Which passages; what is not given does not narrow, but for the principal."""

    text: str
    """Words, in any order; one that begins a longer word counts. No syntax: every character is just that."""
    principal: str
    """Whose memory is asked. Nobody else's is looked at."""
    kinds: tuple[PassageKind, ...] = ()
    actor: str | None = None
    conversation: str | None = None
    run: str | None = None
    tool: str | None = None
    workspace: str | None = None
    """Of pieces of files: only of files below this folder."""
    since_ns: int | None = None
    """Not before this time, UTC nanoseconds."""
    until_ns: int | None = None
    """Before this time."""
    limit: int = 10

    def admits(self, passage: Passage) -> bool:
        """Whether the passage may be found, whatever its words."""
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
    """A passage that answers a question."""

    passage: Passage
    snippet: str
    """The part of its text that answers best; `…` where something is left out."""
    score: float
    """Higher is better; comparable within one answer only."""


class PassageStore(Protocol):
    """Keeps passages and finds them. Called from threads, one call at a time for writing, several for searching."""

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        """Make these passages all that is kept of each origin; none: forget it, words and all. All of it, or nothing."""
        ...

    def of(self, origin: str) -> list[Passage]:
        """What is kept of an origin, in order."""
        ...

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        """The passages with any of the words, the best first, and of equals the newest first."""
        ...

    def files(self, workspace: str) -> dict[str, str]:
        """The files of a workspace that something is kept of: path to stamp."""
        ...

    def count(self, kind: PassageKind, principal: str | None = None) -> int:
        """How many passages there are; of one principal, if given."""
        ...

    def trim(self, kind: PassageKind, principal: str, most: int) -> int:
        """Forget the oldest beyond `most`; returns how many."""
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...
