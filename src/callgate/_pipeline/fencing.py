"""Decide whether an earlier attempt of a call can still act, before the tool's word that nothing happened lets it start again.

A tool's `verify` sees the world as it is now. An engine that only stands still (stopped, swapped out, cut off from the store) may go on
after that, and so may its worker or a thread that could not be stopped. So `verify` counts as "did not happen" only where the earlier
attempt has certainly ended: its engine's process is gone, and its worker's process tree has ended. Knows no tools.
"""

from __future__ import annotations

from callgate._pipeline.again import Origin, Uncertain
from callgate._runners.abandoned import AbandonedCalls
from callgate.protocols import Journal, NamesWriters

__all__ = ["Fence"]

_IN_PROCESS = frozenset({"inline", "thread"})


class Fence:
    """The fence of one engine.

    Args:
        journal: Knows which of its writers have ended.
        behind: The uids of this engine's calls whose code still runs although they have ended.
    """

    def __init__(self, journal: Journal, behind: AbandonedCalls) -> None:
        self._journal = journal
        self._behind = behind

    async def has_ended(self, doubt: Uncertain) -> bool:
        """Whether no code of this call can act any more."""
        if doubt.origin is None:
            return doubt.gone and doubt.uid not in self._behind
        return await self.origin_has_ended(doubt.origin)

    async def origin_has_ended(self, origin: Origin) -> bool:
        """The same for a call that another engine started. Ends the worker of an engine that is gone, within some seconds."""
        journal = self._journal
        if not isinstance(journal, NamesWriters) or not journal.has_ended(origin.writer):
            return False
        if origin.runner in _IN_PROCESS:
            return True
        if origin.runner != "process":
            return False
        from callgate._runners.process.orphaned_worker import end_worker

        return await end_worker(origin.worker)
