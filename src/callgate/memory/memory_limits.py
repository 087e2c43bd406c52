"""All limits of a memory."""

from __future__ import annotations

from typing import Final

from callgate._option_checks import Amount, Count, Options, Pause, Seconds, Whole

__all__ = ["LOGGED_CHARS", "MemoryLimits"]

LOGGED_CHARS: Final = 1_000
"""The largest number of characters of an error in a log line."""


class MemoryLimits(Options, frozen=True, kw_only=True):
    """The limits of one memory. Texts are measured in bytes of UTF-8, except for questions."""

    note_bytes: Whole = 8_192
    """The largest size of one note in bytes."""
    notes: Whole = 10_000
    """The largest number of notes per principal. A further note is refused."""
    note_tags: Whole = 16
    """The largest number of tags per note. A tag has at most 64 characters."""
    calls: Whole = 100_000
    """The largest number of calls per principal. The oldest are removed first."""
    pieces: Whole = 100_000
    """The largest number of pieces of files per principal. The oldest are removed first."""
    indexed_workspaces: Whole = 64
    """The largest number of indexed workspaces. Above it, the oldest index is removed."""
    query_chars: Count = 1_000
    """The largest number of characters of one question. Only its first 32 words are searched."""
    found: Count = 50
    """The largest number of passages returned for one question."""
    file_bytes: Whole = 1_048_576
    """The largest size of a file in bytes. A larger file is not stored."""
    files_per_call: Whole = 1_000
    """The largest number of files that are read because of one call without declared writes."""
    waiting: Whole = 64
    """The largest number of workspaces that wait for a refresh of their index.

    Others are queued by their next search.
    """
    attempts: Count = 3
    """How many times to try to read a file or to embed a text before giving up."""
    events_per_question: Count = 20_000
    """The largest number of events that are read from the journal before a question is answered."""
    embed_at_once: Count = 32
    """The largest number of texts per call of an embedder."""
    embed_s: Seconds = 30.0
    """The time limit in seconds of a call of an embedder."""
    embed_question_s: Seconds = 2.0
    """The time limit in seconds for embedding a question. After it, the question is answered by words alone."""
    farthest: Amount = 1.0
    """The cosine distance (0 to 2) at and above which a passage is not a result. Unrelated texts are at about 1."""
    close_s: Pause = 2.0
    """How many seconds closing waits for background work. Unfinished work is done when the memory is opened again."""
