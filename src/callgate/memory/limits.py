"""Every bound of a memory in one place."""

from __future__ import annotations

from typing import Final

from callgate._options import Amount, Count, Options, Pause, Seconds, Whole

__all__ = ["LOGGED_CHARS", "MemoryLimits"]

LOGGED_CHARS: Final = 1_000
"""Of an error in a line of the log."""


class MemoryLimits(Options, frozen=True, kw_only=True):
    """How much one memory takes. Sizes in bytes of UTF-8."""

    note_bytes: Whole = 8_192
    """One note."""
    notes: Whole = 10_000
    """Notes of one principal; the next one is refused."""
    note_tags: Whole = 16
    """Tags of one note, of 64 characters each."""
    calls: Whole = 100_000
    """Calls of one principal; the oldest go first."""
    pieces: Whole = 100_000
    """Pieces of files that one principal wrote; the oldest go first."""
    indexed_workspaces: Whole = 64
    """Workspaces that have an index; of one more, the index that was made first goes."""
    query_chars: Count = 1_000
    """One question; of it, the first 32 words count."""
    found: Count = 50
    """Passages that one question gives at most."""
    file_bytes: Whole = 1_048_576
    """A larger file is not remembered."""
    files_per_call: Whole = 1_000
    """Files that are taken in because of one call that does not say what it writes."""
    waiting: Whole = 64
    """Workspaces whose index waits to be refreshed; one more has to wait for its next search."""
    attempts: Count = 3
    """How often a file is tried that cannot be taken in, and a text that cannot be embedded."""
    events_per_question: Count = 20_000
    """Events that a question reads from the journal before it is answered."""
    embed_at_once: Count = 32
    """Texts that an embedder is given in one call."""
    embed_s: Seconds = 30.0
    """Seconds that it has for one call."""
    embed_question_s: Seconds = 2.0
    """Seconds that it has for a question; then words alone find."""
    farthest: Amount = 1.0
    """Cosine distance, from 0 to 2, from which on a passage is too far from a question to answer it; 1 has nothing to do with it."""
    close_s: Pause = 2.0
    """Seconds that closing waits for what is being taken in; the rest is done when the memory is opened again."""
