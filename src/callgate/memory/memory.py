"""`Memory`: store and search an agent's results, notes and written files.

A memory that is given to an engine reads the engine's journal in the background: it stores ended calls, and reads and
indexes the files that calls wrote. No call waits for the memory, and no call fails because the memory fails. Calls and
notes can be rebuilt from the journal, and files from the file system.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from callgate._option_checks import by_name
from callgate._run_in_thread import in_thread
from callgate._secret_redaction import Redactor
from callgate._terminal_text import one_line
from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.events import Bus
from callgate.memory.background_jobs import BackgroundJobs
from callgate.memory.background_thread import BackgroundThread
from callgate.memory.database import Database
from callgate.memory.embedder_protocol import Embedder, check
from callgate.memory.file_passages import FilePassages, marks_again, without_secrets
from callgate.memory.journal_follower import Find, JournalFollower, make_finder
from callgate.memory.journal_read_positions import ReadPositions
from callgate.memory.memory_limits import LOGGED_CHARS, MemoryLimits
from callgate.memory.memory_tools import MemoryTools
from callgate.memory.notes import Notes
from callgate.memory.passage import FoundPassage, PassageQuery, PassageStore
from callgate.memory.passage_table import TablePassages
from callgate.memory.passage_vectors import count_vectors, extension
from callgate.memory.semantic_search import SemanticSearch
from callgate.protocols import Journal
from callgate.tools import Tool, ToolRegistry

__all__ = ["Memory", "MemoryStatus"]

log = logging.getLogger("callgate")
_DEFAULTS = MemoryLimits()
_QUESTION_S = 2.0
"""How many seconds a question waits until recently written files have been read."""
_EMBEDDING_ENDS_S = 0.25
"""The minimum time in seconds that the embedding thread gets to stop when the memory is closed."""
_DURABLE_S = 0.02
_DURABLE_TIMES = 100
_MOST = 1_000_000_000


class MemoryStatus(Struct, frozen=True, kw_only=True):
    """The state of a memory, for operators."""

    where: str
    notes: int
    calls: int
    pieces: int
    """The number of pieces of files."""
    indexed: int
    """The number of indexed files."""
    marked: int
    """The number of files and folders that are still to be read."""
    embedder: str = ""
    """The name of the embedder that computed the stored vectors; empty if there never was one."""
    embedded: int = 0
    """The number of passages that have a vector, and so can be found by meaning as well as by words."""
    waiting: int = 0
    """The number of passages without a vector: not embedded yet, or given up. They are found by words only."""
    failure: str = ""
    """The last error; empty if there is none."""


class Memory:
    """A memory in a file.

    Pass it to `Engine(memory=...)`, and its `tools()` to the same engine if a model should use it.

    Args:
        path: The file. The file and its folder are created if they do not exist.
        store: The store of passages. Default: a table in the same file, with full-text search.
        limits: The limits of the memory.
        embedder: Adds search by meaning; needs the extra `memory`. The memory does not close the embedder: close it
            after the memory.
        re_embed: Whether to drop vectors that another embedder computed and to embed everything again in the
            background.

    Raises:
        UsageError: The file cannot be used, its vectors were computed by another embedder, or both `store` and
            `embedder` are given.
    """

    @by_name
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        store: PassageStore | None = None,
        limits: MemoryLimits = _DEFAULTS,
        embedder: Embedder | None = None,
        re_embed: bool = False,
    ) -> None:
        self.limits = limits
        if embedder is not None:
            check(embedder)
            if store is not None:
                raise UsageError("A memory with its own store takes no embedder, because the store searches. Give one of them.")
        self._database = Database(path, extension=extension() if embedder is not None else "")
        self._positions = ReadPositions(self._database)
        table = TablePassages(self._database)
        self._store: PassageStore = store or table
        self._files = FilePassages(self._store, limits)
        self._semantic_search = self._make_semantic_search(table, embedder, anew=re_embed) if embedder is not None else None
        self._notes = Notes(self._store, limits, self._files)
        self._background = BackgroundThread(self._run_background_jobs, failing="what calls came to could not be taken in")
        self._jobs = BackgroundJobs(
            self._database,
            self._positions,
            self._files,
            limits,
            stopped=lambda: self._background.stopping,
            wake=self._background.wake,
        )
        self.index = self._jobs.index
        """The index, for `workspace_tools(index=...)`."""
        self._follower: JournalFollower | None = None
        self._durable: Callable[[], int] = lambda: 0
        self.catching_up = False
        """Whether the last question was answered before all earlier events were read."""

    @property
    def files(self) -> tuple[str, ...]:
        """See `callgate.protocols.OnDisk`."""
        return self._database.files

    def tools(self) -> list[Tool]:
        """Return the tools `remember`, `recall` and `forget`."""
        return MemoryTools(self).tools()

    def _make_semantic_search(self, table: TablePassages, embedder: Embedder, *, anew: bool) -> SemanticSearch:
        def hide(text: str) -> str:
            return without_secrets(self._files.redactor, text)

        try:
            return SemanticSearch(self._database, table, embedder, self.limits, hide, anew=anew)
        except UsageError:
            self._database.close()
            raise

    # Following an engine

    def follow(self, journal: Journal, bus: Bus, tools: ToolRegistry, redactor: Redactor | None) -> None:
        """See `callgate.protocols.Follower`."""
        if self._follower is not None:
            raise UsageError("This memory follows an engine already. Make another Memory of the same file for another engine.")
        self._files.redactor = redactor
        self._durable = lambda: journal.status().written
        lasting = journal.strength != "memory"
        self._follower = JournalFollower(
            make_finder(journal),
            self._positions,
            self._store,
            self.limits,
            keep=self._notes.store_changes,
            tools=tools,
            lasting=lasting,
            redacted=redactor is not None,
        )
        bus.subscribe(lambda topic, item: self._background.wake(), "tool.completed", "call.aborted", "call.restarted")

    async def settled(self, timeout_s: float = 30.0) -> bool:
        """Wait until all calls that have ended are stored and embedded. Return False if `timeout_s` passes first."""
        return await in_thread(lambda: self._settled(timeout_s))

    def _settled(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        done = self._background.wait_until_done(timeout_s)
        return done and (self._semantic_search is None or self._semantic_search.wait_until_done(max(0.0, deadline - time.monotonic())))

    def _run_background_jobs(self) -> bool:
        """Do one round of background work; return whether no work remains."""
        all_done = self._read_journal() and self._jobs.read_marked_files()
        if self._semantic_search is not None:
            self._semantic_search.wake()
        if all_done:
            self._jobs.refresh_indexes()
        return all_done

    def _read_journal(self) -> bool:
        """Read the next events, and wait for those about to become durable. Return whether no events remain."""
        if self._follower is None:
            return True
        for _ in range(_DURABLE_TIMES):
            progress = self._follower.read_events(self.limits.events_per_question, self._durable)
            if progress != "early" or self._background.stopping:
                return progress != "some"
            time.sleep(_DURABLE_S)
        return True

    # Notes

    def remember(self, text: str, *, tags: Iterable[str] = (), principal: str = "", scope: Scope | None = None, call: str = "") -> str:
        """Store a note and return its id. Storing the same text for the same principal again replaces the note.

        Args:
            principal: The owner of the note. Ignored if `scope` is given.
            scope: The scope of the call that stores the note; its principal is the owner.
            call: The uid of the call that stores the note.

        Raises:
            CallgateError: The note is empty or too large, or there are too many notes.
        """
        identity = self._notes.keep(text, list(tags), scope or Scope(principal=principal), call)
        if self._semantic_search is not None:
            self._semantic_search.wake()
        return identity

    def forget(self, identity: str, *, principal: str = "") -> None:
        """Delete a note.

        Raises:
            CallgateError: This principal has no such note.
        """
        self._notes.forget(identity, principal)

    # Questions

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        """Return the best passages.

        Passages of files that have changed since are left out, and these files are read again in the background.

        A memory with an embedder searches by words and by meaning. It searches by words alone if it has no embedder, or
        if the embedder fails or does not answer in time.
        """
        text, limit = query.text[: self.limits.query_chars], max(1, min(query.limit, self.limits.found))
        question = replace(query, text=text, limit=limit)
        found = self._store.search(question) if self._semantic_search is None else self._semantic_search.search(question)
        stale = [one.passage for one in found if one.passage.kind == "file" and not self._files.is_current(one.passage)]
        if stale:
            self._positions.mark(marks_again(stale))
            self._background.wake()
        return [one for one in found if one.passage not in stale]

    def recalled(self, text: str, *, scope: Scope, limit: int) -> list[FoundPassage]:
        """Return the passages for `recall`: those of the scope's principal, and files only of the scope's workspace.

        First reads calls that have ended but are not stored yet.
        """
        try:
            if self._follower is not None:
                self.catching_up = self._follower.read_events(self.limits.events_per_question, self._durable) == "some"
            if self._positions.count():
                self._background.wait_until_done(_QUESTION_S)
        except Exception as error:
            log.error(
                "Memory: what ended last could not be taken in before a question: %s: %s",
                type(error).__name__,
                one_line(str(error), LOGGED_CHARS),
            )
        workspace = os.path.realpath(scope.workspace) if scope.workspace else ""
        return self.search(PassageQuery(text=text, principal=scope.principal, workspace=workspace, limit=limit))

    # Rebuilding

    def rebuild(self, find: Find, tools: ToolRegistry | None = None, *, files: bool = False) -> None:
        """Read the notes and calls of a journal again, starting at its first event.

        Args:
            find: The `find` method of the journal or of a reader.
            tools: The tools, which declare the files that their calls write.
            files: Whether to also read the files that the calls wrote. Their current content is stored, without
                redaction.
        """
        follower = JournalFollower(
            find, self._positions, self._store, self.limits, keep=self._notes.store_changes, tools=tools, files=files
        )
        follower.restart()
        follower.read_events(_MOST)
        while files and not self._jobs.read_marked_files():
            pass

    def embed(self, timeout_s: float = 600.0) -> int:
        """Embed all texts that have no vector, and wait until this is done.

        Texts that failed too often before are tried again.

        Returns:
            The number of passages without a vector.

        Raises:
            EmbedderFailed: The embedder failed, or `timeout_s` has passed. Embedding continues in the background.
            UsageError: This memory has no embedder.
        """
        if self._semantic_search is None:
            raise UsageError("This memory has no embedder. Give it one: Memory(path, embedder=...).")
        self._semantic_search.complete(timeout_s)
        return self.status().waiting

    def status(self) -> MemoryStatus:
        """Return how many items are stored, how many are waiting, and the last error."""
        embedder, embedded, waiting = count_vectors(self._database)
        return MemoryStatus(
            where=self._database.path,
            notes=self._store.count("note"),
            calls=self._store.count("call"),
            pieces=self._store.count("file"),
            indexed=self.index.count(),
            marked=self._positions.count(),
            embedder=embedder,
            embedded=embedded,
            waiting=waiting,
            failure=self._background.failure
            or self._jobs.failure
            or (self._semantic_search.failure if self._semantic_search is not None else ""),
        )

    # Closing

    async def close(self) -> None:
        """Close in bounded time. Unfinished work is done when the memory is opened again. Idempotent."""
        await in_thread(self.close_sync)

    def close_sync(self) -> None:
        """Close the memory like `close`, without an event loop."""
        deadline = time.monotonic() + self.limits.close_s
        done = self._background.stop(self.limits.close_s)
        if self._semantic_search is not None:
            done = self._semantic_search.stop(max(_EMBEDDING_ENDS_S, deadline - time.monotonic())) and done
        if done:
            self._store.close()
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close_sync()
