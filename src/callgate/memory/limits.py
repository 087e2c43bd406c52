"""Every bound of a memory in one place."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["MemoryLimits"]


class MemoryLimits(Struct, frozen=True, kw_only=True):
    """How much one memory takes. Sizes in bytes of UTF-8."""

    note_bytes: int = 8_192
    """One note."""
    notes: int = 10_000
    """Notes of one principal; the next one is refused."""
    note_tags: int = 16
    """Tags of one note, of 64 characters each."""
    calls: int = 100_000
    """Calls of one principal; the oldest go first."""
    pieces: int = 100_000
    """Pieces of files that one principal wrote; the oldest go first."""
    indexed_workspaces: int = 64
    """Workspaces that have an index; of one more, the index that was made first goes."""
    query_chars: int = 1_000
    """One question; of it, the first 32 words count."""
    found: int = 50
    """Passages that one question gives at most."""
    file_bytes: int = 1_048_576
    """A larger file is not remembered."""
    files_per_call: int = 1_000
    """Files that are taken in because of one call that does not say what it writes."""
    waiting: int = 64
    """Workspaces whose index waits to be refreshed; one more has to wait for its next search."""
    attempts: int = 3
    """How often a file is tried that cannot be taken in, and a text that cannot be embedded."""
    events_per_question: int = 20_000
    """Events that a question reads from the journal before it is answered."""
    embed_at_once: int = 32
    """Texts that an embedder is given in one call."""
    embed_s: float = 30.0
    """Seconds that it has for one call."""
    embed_question_s: float = 2.0
    """Seconds that it has for a question; then words alone find."""
    farthest: float = 1.0
    """Cosine distance, from 0 to 2, from which on a passage is too far from a question to answer it; 1 has nothing to do with it."""
    close_s: float = 2.0
    """Seconds that closing waits for what is being taken in; the rest is done when the memory is opened again."""
