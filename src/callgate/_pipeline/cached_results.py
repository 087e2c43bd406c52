"""The results that the cache keeps: in memory, in a file beside the journal, or in the host's persistent store.

Results are encoded, so that no two calls share an object, and redacted. Only successful ones are given here. If a store fails, a result is
not found or not kept, and nothing else happens. Knows no running calls.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._cache import JournalCache, SqliteCache
from callgate._clock import Clock
from callgate._secret_redaction import RedactedLog, Redactor
from callgate.content_parts import with_data, without_data
from callgate.protocols import CacheStore
from callgate.stage_types import Checked
from callgate.tools import BoundTool

__all__ = ["CachedResults", "decode_checked", "encode_checked"]

encode_checked = msgspec.json.Encoder().encode
decode_checked = msgspec.json.Decoder(Checked).decode


class CachedResults:
    """The cached results of one engine.

    Args:
        memory: For results that end with the engine.
        persistent: The host's store for tools with the cache scope `persistent`; None: `common`, or else memory.
        common: The store beside the journal's file, which other engines of the journal may use; None: there is none.
    """

    def __init__(
        self, memory: CacheStore, persistent: CacheStore | None, common: JournalCache | None, clock: Clock, redactor: Redactor | None
    ) -> None:
        self._memory = memory
        self._persistent = common if persistent is None else persistent
        self._common = common
        self._in_file = self._persistent if isinstance(self._persistent, SqliteCache | JournalCache) else None
        """The persistent store, if other processes may use it at the same time."""
        self.is_common = persistent is None
        """Whether the engines of the journal use the same persistent store, and drop from it what they write."""
        self._clock = clock
        self._redactor = redactor
        self._log = RedactedLog(redactor)
        self._trusted = True
        """Whether the persistent store has dropped everything that it was told to drop."""
        self.may_exist = self._persistent is not None
        """Whether there may be any result."""

    def _store(self, tool: BoundTool) -> CacheStore:
        return self._persistent if tool.cache_scope == "persistent" and self._persistent is not None and self._trusted else self._memory

    def get(self, tool: BoundTool, key: str) -> Checked | None:
        """Return a result of a tool; None if there is none, or it cannot be read."""
        try:
            kept = self._store(tool).get(key, self._clock.wall_ns())
            return None if kept is None else decode_checked(kept)
        except FAILURES as error:
            self._log.warning("A cached result could not be read (%s: %s); the call runs", type(error).__name__, error)
            return None

    def announce(self, tool: BoundTool, key: str, reads: frozenset[str]) -> bytes | None:
        """Announce a result of a tool to the processes that use the same file. Return its mark for `put`; None if it needs none.

        A mark of a failed announcement is empty: with it, nothing is stored.
        """
        if self._in_file is None or not reads or self._store(tool) is not self._in_file:
            return None
        try:
            return self._in_file.announce(key, reads)
        except FAILURES as error:
            self._log.warning("A result could not be announced to the cache (%s)", type(error).__name__)
            return b""

    def put(self, tool: BoundTool, key: str, checked: Checked, reads: frozenset[str], mark: bytes | None) -> None:
        """Store a result of a tool.

        Args:
            reads: The resources that it was read from.
            mark: What `announce` returned before the result was computed.
        """
        expires = None if tool.cache_ttl is None else self._clock.wall_ns() + int(tool.cache_ttl * 1e9)
        try:
            value = encode_checked(checked) if self._redactor is None else _redact(checked, self._redactor)
            self.may_exist = True
            if self._in_file is None or mark is None:
                self._store(tool).put(key, value, expires_ns=expires, reads=reads)
            else:
                self._in_file.put_announced(key, mark, value, expires_ns=expires)
        except FAILURES as error:
            self._log.warning("A result of %s could not be cached (%s)", tool.name, type(error).__name__)

    def drop(self, tool: BoundTool, key: str) -> None:
        """Remove a result of a tool."""
        try:
            self._store(tool).put(key, b"", expires_ns=0, reads=frozenset())
        except FAILURES as error:
            self._log.error("A cached result that hooks change or withhold could not be dropped (%s)", type(error).__name__)

    def drop_written(self, writes: frozenset[str]) -> None:
        """Remove the results that were read from resources that a call of this engine writes, from every store."""
        self.drop_written_elsewhere(writes, persistent=True)
        if self._common is not None and not self.is_common:
            try:
                self._common.drop_written(writes)
            except FAILURES as error:
                why = f"{type(error).__name__}: {error}"
                self._log.error("The cache beside the journal could not forget what is written now (%s)", why)

    def drop_written_elsewhere(self, writes: frozenset[str], *, persistent: bool) -> None:
        """Remove the results that were read from resources that were written by other engines, or outside of any call.

        Args:
            persistent: Whether to remove them from the persistent store, too.
        """
        self._memory.drop_written(writes)
        if persistent and self._persistent is not None and self._trusted:
            try:
                self._persistent.drop_written(writes)
            except FAILURES as error:
                self._trusted = False
                why = f"{type(error).__name__}: {error}"
                self._log.error("The persistent cache could not forget what is written now (%s); this engine asks it for nothing more", why)

    def close(self) -> None:
        self._memory.close()
        for store in {id(one): one for one in (self._persistent, self._common) if one is not None}.values():
            store.close()
        self._persistent = self._common = None  # code that was left behind may still end, and have something forgotten


def _redact(checked: Checked, redactor: Redactor) -> bytes:
    """Return a result as it is stored: redacted, apart from images and files, which would no longer be valid."""
    parts = checked.content
    value = redactor.redact(encode_checked(replace(checked, content=without_data(parts)) if parts else checked))
    if not parts:
        return value
    redacted = decode_checked(value)
    return encode_checked(replace(redacted, content=with_data(redacted.content, parts)))
