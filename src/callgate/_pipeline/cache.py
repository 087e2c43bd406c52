"""Answer a call from a result that is still good, and let identical calls in flight share one run.

Sits after the gate, so that a denied call is never answered from here, and before the run, which is all that a hit skips: hooks,
normalisation and the record still happen. What is kept or shared is the checked result as bytes, so that copies go in and copies come
out. Only successful results are, and none to a call that came after a write of what it reads.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._clock import Clock
from callgate._redact import Redactor
from callgate._signals import AbortSignal, settled
from callgate.protocols import CacheStore
from callgate.route import ApprovedCall, Checked
from callgate.tools.resources import Touched, meet

__all__ = ["Cache", "cache_key"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Checked).decode


def cache_key(approved: ApprovedCall) -> str:
    """What a cached result is bound to: the tool as it is now, the final arguments, the principal, the actor, the workspace, the tick."""
    call = approved.call
    scope = call.scope
    tick = _tick(approved) if call.tool.cache_scope == "tick" else ""
    digest = hashlib.blake2b(digest_size=20)
    for part in (call.tool.identity, scope.principal, scope.actor, scope.workspace, tick):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\x00")
    digest.update(approved.encoded)
    return digest.hexdigest()


def _tick(approved: ApprovedCall) -> str:
    scope = approved.call.scope
    return f"{scope.run}/{scope.conversation}/{scope.tick or scope.turn}"


class _Shared(Struct, frozen=True, eq=False):
    """A run that identical calls may wait for."""

    reads: frozenset[str]
    done: asyncio.Future[bytes | None]
    """Its success, encoded, so that nobody shares an object with anybody; None if it did not succeed."""

    def meets(self, writes: frozenset[str]) -> bool:
        return any(meet(write, read) for write in writes for read in self.reads)


class Cache:
    """The cache stage of one engine."""

    def __init__(self, memory: CacheStore, persistent: CacheStore | None, clock: Clock, redactor: Redactor | None) -> None:
        self._memory = memory
        self._persistent = persistent
        self._clock = clock
        self._redactor = redactor
        self._flights: dict[str, _Shared] = {}
        self._writes = 0

    async def answer(
        self, approved: ApprovedCall, execute: Callable[[], Awaitable[Checked]], *, kill: AbortSignal, timeout_s: float
    ) -> Checked:
        """The call's checked result: cached, shared with an identical call in flight, or fresh from `execute`.

        A call that waits for another's result waits no longer than its own kill and time limit allow; then `execute` says how it ends.
        """
        scope = approved.call.tool.cache_scope
        if scope is None:
            return await execute()
        key = cache_key(approved)
        store = self._persistent if scope == "persistent" and self._persistent is not None else self._memory
        kept = store.get(key, self._clock.wall_ns())
        if kept is not None:
            return replace(_decode(kept), cached=scope, attempts=0, duration_ms=0.0)
        flight = self._flights.get(key)
        if flight is not None:
            shared = flight.done.result() if await settled(flight.done, kill, timeout_s) else None
            return await execute() if shared is None else replace(_decode(shared), joined=True, attempts=0)
        return await self._lead(approved, key, store, execute)

    async def _lead(self, approved: ApprovedCall, key: str, store: CacheStore, execute: Callable[[], Awaitable[Checked]]) -> Checked:
        """Run, and let those that wait for the same have the result if it is a success."""
        touched = approved.call.tool.touched(approved.call.arguments, approved.call.scope)
        reads = touched.reads if touched else frozenset[str]()
        flight = self._flights[key] = _Shared(reads, asyncio.get_running_loop().create_future())
        writes = self._writes
        good: bytes | None = None
        try:
            checked = await execute()
            if checked.status == "ok":
                good = _encode(checked)
                if writes == self._writes:
                    self._keep(approved, key, store, good, reads)
            return checked
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.done.set_result(good)

    def _keep(self, approved: ApprovedCall, key: str, store: CacheStore, value: bytes, reads: frozenset[str]) -> None:
        tool = approved.call.tool
        if self._redactor is not None:
            value = self._redactor.redact(value)
        expires = None if tool.cache_ttl is None else self._clock.wall_ns() + int(tool.cache_ttl * 1e9)
        group = _tick(approved) if tool.cache_scope == "tick" else tool.cache_scope or ""
        store.put(key, value, group=group, expires_ns=expires, reads=reads)

    def written(self, touched: Touched | None) -> None:
        """Forget what was read from resources that a call is writing; called before it starts and after it ends.

        Who waits already for a run that reads them began before the write ended and may have its result; whoever comes now may not.
        """
        if touched is None or not touched.writes:
            return
        self._writes += 1
        for key in [key for key, flight in self._flights.items() if flight.meets(touched.writes)]:
            del self._flights[key]
        self._memory.drop_written(touched.writes)
        if self._persistent is not None:
            self._persistent.drop_written(touched.writes)

    def end_tick(self, tick: str) -> None:
        self._memory.drop_group(tick)

    def close(self) -> None:
        self._memory.close()
        if self._persistent is not None:
            self._persistent.close()
