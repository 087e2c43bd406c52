"""Notes: check, redact and store a text that a caller wants to remember.

A note is stored before the caller gets its id; passages of other kinds are stored later, from the journal. The journal
records the call of `remember` too, so that notes can be rebuilt from it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from callgate.builtins._tool_failures import CannotDo
from callgate.calls import Scope
from callgate.memory.ended_calls import note_id, note_origin
from callgate.memory.file_passages import FilePassages, without_secrets
from callgate.memory.memory_limits import MemoryLimits
from callgate.memory.passage import Passage, PassageStore
from callgate.memory.text_terms import plain

__all__ = ["Notes"]

_TAG_CHARS = 64
_MOST_FORGOTTEN = 10_000


class Notes:
    """The notes of one memory."""

    def __init__(self, store: PassageStore, limits: MemoryLimits, files: FilePassages) -> None:
        self._store = store
        self._limits = limits
        self._files = files
        self._guard = threading.Lock()
        self._forgotten: dict[str, None] = {}
        """Origins of deleted notes. Until the follower reaches the deletion in the journal, it must not store these notes again."""

    def keep(self, text: str, tags: Sequence[str], scope: Scope, call: str) -> str:
        """Store a note and return its id.

        Raises:
            CannotDo: The note is empty or too large, or there are too many notes.
        """
        self._check(text, tags)
        note, *labels = (without_secrets(self._files.redactor, plain(word)) for word in (text, *tags))
        identity = note_id(scope.principal, note)
        origin = note_origin(identity)
        passage = Passage(
            origin=origin,
            kind="note",
            text=note,
            at_ns=time.time_ns(),
            principal=scope.principal,
            actor=scope.actor,
            conversation=scope.conversation,
            run=scope.run,
            call=call,
            tool="remember",
            workspace=scope.workspace,
            tags=tuple(labels),
        )
        with self._guard:
            if not self._store.of(origin) and self._store.count("note", scope.principal) >= self._limits.notes:
                raise CannotDo(f"{self._limits.notes:,} notes are kept, which is the limit. Forget some that are no longer needed first.")
            self._forgotten.pop(origin, None)
            self._store.keep({origin: [passage]})
        return identity

    def forget(self, identity: str, principal: str) -> None:
        """Delete a note.

        Raises:
            CannotDo: This principal has no such note.
        """
        origin = note_origin(identity)
        with self._guard:
            if not any(passage.principal == principal for passage in self._store.of(origin)):
                raise CannotDo(f"There is no note {plain(identity)[:40]!r}. recall gives the ids of notes.")
            self._forgotten[origin] = None
            if len(self._forgotten) > _MOST_FORGOTTEN:
                del self._forgotten[next(iter(self._forgotten))]
            self._store.keep({origin: ()})

    def store_changes(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        """Store passages from the journal, except notes that have been deleted since."""
        with self._guard:
            self._store.keep({origin: () if origin in self._forgotten else passages for origin, passages in changes.items()})
            for origin, passages in changes.items():
                if not passages:  # the journal has reached the note's deletion
                    self._forgotten.pop(origin, None)

    def _check(self, text: str, tags: Sequence[str]) -> None:
        limits, size = self._limits, len(text.encode("utf-8", "replace"))
        if not plain(text).strip():
            raise CannotDo("The note is empty. Say what to remember.")
        if size > limits.note_bytes:
            raise CannotDo(f"The note has {size:,} bytes; {limits.note_bytes:,} is the limit. Shorten it, or make several.")
        if len(tags) > limits.note_tags or any(not tag.strip() or len(tag) > _TAG_CHARS for tag in tags):
            raise CannotDo(f"A note has at most {limits.note_tags} tags of 1 to {_TAG_CHARS} characters. Give fewer or shorter ones.")
