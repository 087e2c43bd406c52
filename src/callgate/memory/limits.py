"""All limits of a memory."""

from __future__ import annotations

from typing import Final

from callgate._options import Amount, Count, Options, Pause, Seconds, Whole

__all__ = ["LOGGED_CHARS", "MemoryLimits"]

LOGGED_CHARS: Final = 1_000
"""Characters of an error in a log line."""


class MemoryLimits(Options, frozen=True, kw_only=True):
    """The limits of one memory. Sizes are in bytes of UTF-8."""

    note_bytes: Whole = 8_192
    """Bytes of one note."""
    notes: Whole = 10_000
    """Notes per principal; a further one is refused."""
    note_tags: Whole = 16
    """Tags per note, of at most 64 characters each."""
    calls: Whole = 100_000
    """Calls per principal; the oldest are removed first."""
    pieces: Whole = 100_000
    """Pieces of files per principal; the oldest are removed first."""
    indexed_workspaces: Whole = 64
    """Indexed workspaces; above, the oldest index is removed."""
    query_chars: Count = 1_000
    """Bytes of one question; only its first 32 words count."""
    found: Count = 50
    """The maximum number of passages per question."""
    file_bytes: Whole = 1_048_576
    """Bytes of a file; a larger one is not stored."""
    files_per_call: Whole = 1_000
    """Files that are read because of one call without declared writes."""
    waiting: Whole = 64
    """Workspaces that wait for a refresh of their index; a further one waits for its next search."""
    attempts: Count = 3
    """Attempts for a file that cannot be read or a text that cannot be embedded."""
    events_per_question: Count = 20_000
    """The maximum number of events to read from the journal before a question is answered."""
    embed_at_once: Count = 32
    """Texts per call of an embedder."""
    embed_s: Seconds = 30.0
    """Seconds per call of an embedder."""
    embed_question_s: Seconds = 2.0
    """Seconds for the embedding of a question; then it is answered by words alone."""
    farthest: Amount = 1.0
    """The cosine distance, from 0 to 2, at which a passage no longer answers a question; 1 means unrelated."""
    close_s: Pause = 2.0
    """Seconds that closing waits for background work; the rest is done when the memory is opened again."""
