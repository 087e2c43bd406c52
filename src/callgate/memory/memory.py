"""`Memory`: what an agent's calls came to, the notes it made and the files it wrote, to be found again.

Give it to an engine, and it follows the record: whatever ended is remembered, and what calls wrote to a workspace is marked, read again and
indexed, all of it in the background and beside the route. It fails no call and keeps none waiting. What it holds of calls and notes is made
from the journal, what it holds of files from the files, and all of it can be made again.
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

from callgate._in_thread import in_thread
from callgate._options import by_name
from callgate._redact import Redactor
from callgate._terminal_text import one_line
from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.events import Bus
from callgate.memory.background_jobs import BackgroundJobs
from callgate.memory.background_thread import BackgroundThread
from callgate.memory.database import Database
from callgate.memory.embedding import Embedder, check
from callgate.memory.file_passages import FilePassages, marks_again, without_secrets
from callgate.memory.journal_follower import Find, JournalFollower, finder
from callgate.memory.limits import LOGGED_CHARS, MemoryLimits
from callgate.memory.notes import Notes
from callgate.memory.passage_table import TablePassages
from callgate.memory.passages import FoundPassage, PassageQuery, PassageStore
from callgate.memory.read_positions import ReadPositions
from callgate.memory.semantic_search import SemanticSearch
from callgate.memory.tools import MemoryTools
from callgate.memory.vectors import counted, extension
from callgate.protocols import Journal
from callgate.tools import Tool, ToolRegistry

__all__ = ["Memory", "MemoryStatus"]

log = logging.getLogger("callgate")
_DEFAULTS = MemoryLimits()
_QUESTION_S = 2.0
"""How long a question waits for files that were written a moment ago."""
_EMBEDDING_ENDS_S = 0.25
"""What embedding has to end at least, however long the rest took."""
_DURABLE_S = 0.02
_DURABLE_TIMES = 100
_MOST = 1_000_000_000


class MemoryStatus(Struct, frozen=True, kw_only=True):
    """How a memory does, for an operator."""

    where: str
    notes: int
    calls: int
    pieces: int
    """Of files."""
    indexed: int
    """Files that searches know."""
    marked: int
    """Files and folders that have still to be looked at."""
    embedder: str = ""
    """Whose vectors there are; empty where there never was an embedder."""
    embedded: int = 0
    """Passages that are found by meaning, too."""
    waiting: int = 0
    """Passages that are found by words only, because they have not been embedded yet or cannot be."""
    failure: str = ""
    """What went wrong last; empty where nothing did."""


class Memory:
    """A memory in a file. Hand it to `Engine(memory=...)`, and `tools()` to the same engine for a model to use.

    Args:
        path: Made if it does not exist, its folder too.
        store: Where passages are kept; None: in the same file, found by full-text search.
        limits: Every bound.
        embedder: Finds by meaning, beside words; needs the extra `memory`. It stays yours: close it after the memory.
        re_embed: Drop the vectors of another embedder and embed everything anew, in the background.

    Raises:
        UsageError: The file cannot be used, or its vectors are of another embedder.
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
                raise UsageError("A memory with a store of its own takes no embedder: that store finds. Give the one or the other.")
        self._database = Database(path, extension=extension() if embedder is not None else "")
        self._ledger = ReadPositions(self._database)
        table = TablePassages(self._database)
        self._store: PassageStore = store or table
        self._files = FilePassages(self._store, limits)
        self._meaning = self._meant(table, embedder, anew=re_embed) if embedder is not None else None
        self._notes = Notes(self._store, limits, self._files)
        self._background = BackgroundThread(self._chore, failing="what calls came to could not be taken in")
        self._chores = BackgroundJobs(
            self._database,
            self._ledger,
            self._files,
            limits,
            stopped=lambda: self._background.stopping,
            wake=self._background.wake,
        )
        self.index = self._chores.index
        """For `workspace_tools(index=...)`: makes searches faster."""
        self._following: JournalFollower | None = None
        self._durable: Callable[[], int] = lambda: 0
        self.catching_up = False
        """Whether the last question was answered before all older events were read."""

    @property
    def files(self) -> tuple[str, ...]:
        """See `callgate.protocols.OnDisk`."""
        return self._database.files

    def tools(self) -> list[Tool]:
        """`remember`, `recall` and `forget`, for an engine."""
        return MemoryTools(self).tools()

    def _meant(self, table: TablePassages, embedder: Embedder, *, anew: bool) -> SemanticSearch:
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
        if self._following is not None:
            raise UsageError("This memory follows an engine already. Make another Memory of the same file for another engine.")
        self._files.redactor = redactor
        self._durable = lambda: journal.status().written
        lasting = journal.strength != "memory"
        self._following = JournalFollower(
            finder(journal),
            self._ledger,
            self._store,
            self.limits,
            keep=self._notes.take_in,
            tools=tools,
            lasting=lasting,
            redacted=redactor is not None,
        )
        bus.subscribe(lambda topic, item: self._background.wake(), "tool.completed", "call.aborted", "call.restarted")

    async def settled(self, timeout_s: float = 30.0) -> bool:
        """Wait until everything that ended by now is taken in, and embedded; False where the time was not enough."""
        return await in_thread(lambda: self._settled(timeout_s))

    def _settled(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        done = self._background.settled(timeout_s)
        return done and (self._meaning is None or self._meaning.settled(max(0.0, deadline - time.monotonic())))

    def _chore(self) -> bool:
        """One round of what there is to do; whether that was all."""
        all_done = self._read_on() and self._chores.look_at_files()
        if self._meaning is not None:
            self._meaning.wake()
        if all_done:
            self._chores.refresh_indexes()
        return all_done

    def _read_on(self) -> bool:
        """Read the next events, those that are about to be durable too; whether that was all."""
        if self._following is None:
            return True
        for _ in range(_DURABLE_TIMES):
            progress = self._following.take_in(self.limits.events_per_question, self._durable)
            if progress != "early" or self._background.stopping:
                return progress != "some"
            time.sleep(_DURABLE_S)
        return True

    # Notes

    def remember(self, text: str, *, tags: Iterable[str] = (), principal: str = "", scope: Scope | None = None, call: str = "") -> str:
        """Keep a note and return its id. The same text of the same principal is one note.

        Args:
            principal: Whose note it is; `scope` says it, and more, where a call makes it.

        Raises:
            CallgateError: It is empty or too large, or there are too many.
        """
        identity = self._notes.keep(text, list(tags), scope or Scope(principal=principal), call)
        if self._meaning is not None:
            self._meaning.wake()
        return identity

    def forget(self, identity: str, *, principal: str = "") -> None:
        """Delete a note.

        Raises:
            CallgateError: This principal has no such note.
        """
        self._notes.forget(identity, principal)

    # Questions

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        """The passages that answer best; those of files that have changed since are left out, and looked at again.

        By words; with an embedder by meaning too, and by words alone where that does not answer in time.
        """
        text, limit = query.text[: self.limits.query_chars], max(1, min(query.limit, self.limits.found))
        question = replace(query, text=text, limit=limit)
        found = self._store.search(question) if self._meaning is None else self._meaning.search(question)
        stale = [one.passage for one in found if one.passage.kind == "file" and not self._files.is_current(one.passage)]
        if stale:
            self._ledger.mark(marks_again(stale))
            self._background.wake()
        return [one for one in found if one.passage not in stale]

    def recalled(self, text: str, *, scope: Scope, limit: int) -> list[FoundPassage]:
        """What `recall` finds: of this principal, and of files in this workspace; everything that ended by now counts."""
        try:
            if self._following is not None:
                self.catching_up = self._following.take_in(self.limits.events_per_question, self._durable) == "some"
            if self._ledger.count():
                self._background.settled(_QUESTION_S)
        except Exception as error:
            log.error(
                "Memory: what ended last could not be taken in before a question: %s: %s",
                type(error).__name__,
                one_line(str(error), LOGGED_CHARS),
            )
        workspace = os.path.realpath(scope.workspace) if scope.workspace else ""
        return self.search(PassageQuery(text=text, principal=scope.principal, workspace=workspace, limit=limit))

    # Making it again

    def rebuild(self, find: Find, tools: ToolRegistry | None = None, *, files: bool = False) -> None:
        """Read a journal from its first event, whatever was read of it before: notes and calls.

        Args:
            find: The journal's, or a reader's, `find`.
            tools: Say which files their calls write.
            files: Read the files too, as they are now. Nobody takes secrets out of them here: an engine that follows does.
        """
        following = JournalFollower(find, self._ledger, self._store, self.limits, keep=self._notes.take_in, tools=tools, files=files)
        following.from_the_first()
        following.take_in(_MOST)
        while files and not self._chores.look_at_files():
            pass

    def embed(self, timeout_s: float = 600.0) -> int:
        """Wait until everything is embedded that can be, what was left to words included; returns how many passages have no vector still.

        Raises:
            EmbedderFailed: The embedder failed, or the time was not enough: the rest goes on in the background.
            UsageError: This memory has no embedder.
        """
        if self._meaning is None:
            raise UsageError("This memory has no embedder. Give it one: Memory(path, embedder=...).")
        self._meaning.complete(timeout_s)
        return self.status().waiting

    def status(self) -> MemoryStatus:
        """What there is, and what is still to be done."""
        embedder, embedded, waiting = counted(self._database)
        return MemoryStatus(
            where=self._database.path,
            notes=self._store.count("note"),
            calls=self._store.count("call"),
            pieces=self._store.count("file"),
            indexed=self.index.count(),
            marked=self._ledger.count(),
            embedder=embedder,
            embedded=embedded,
            waiting=waiting,
            failure=self._background.failure or self._chores.failure or (self._meaning.failure if self._meaning is not None else ""),
        )

    # Life

    async def close(self) -> None:
        """End in bounded time. What is not taken in by then is when the memory is opened again. Idempotent."""
        await in_thread(self.close_sync)

    def close_sync(self) -> None:
        """`close` for plain code."""
        deadline = time.monotonic() + self.limits.close_s
        done = self._background.stop(self.limits.close_s)
        if self._meaning is not None:
            done = self._meaning.stop(max(_EMBEDDING_ENDS_S, deadline - time.monotonic())) and done
        if done:
            self._store.close()
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close_sync()
