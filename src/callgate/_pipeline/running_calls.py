"""The calls of one engine that are under way, and waiting until some of them have ended.

A call is in here from when its second half begins until it has its outcome. Starts and ends no call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from callgate._pipeline.call_state import CallState

__all__ = ["RunningCalls"]


class RunningCalls:
    """The calls of one engine that are under way."""

    def __init__(self) -> None:
        self.by_uid: dict[str, CallState] = {}
        self._awaited: list[_AwaitedCalls] = []

    def remove(self, state: CallState) -> None:
        """Remove a call that has ended."""
        del self.by_uid[state.uid]
        for calls in self._awaited:
            calls.remove(state.uid)

    def has_conversation(self, conversation: str) -> bool:
        """Return whether a call of the conversation is running."""
        return any(state.scope.conversation == conversation for state in self.by_uid.values())

    async def wait_for(self, uids: Iterable[str], timeout_s: float) -> set[str]:
        """Wait until these calls have ended, at most `timeout_s` seconds. Return those that have not."""
        awaited = _AwaitedCalls(uids)
        if not awaited.uids:
            return awaited.uids
        self._awaited.append(awaited)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await awaited.all_ended.wait()
        finally:
            self._awaited.remove(awaited)
        return awaited.uids


class _AwaitedCalls:
    """Running calls whose end somebody waits for."""

    def __init__(self, uids: Iterable[str]) -> None:
        self.uids = set(uids)
        self.all_ended = asyncio.Event()

    def remove(self, uid: str) -> None:
        self.uids.discard(uid)
        if not self.uids:
            self.all_ended.set()
