"""What adapters implement, and the values that cross those borders.

A policy decides, a runner runs, a journal keeps, a blob store holds bytes, a cache store holds results. Every implementation of one
protocol passes the same contract suite. Knows no implementation.
"""

from __future__ import annotations

from callgate.protocols.beside import Follower, Kept, RestartHandler, WriteLog
from callgate.protocols.journals import Journal, JournalStatus, Letter, NamesWriters, QueuedJournal, RunWatcher
from callgate.protocols.policies import Allow, Ask, Deny, InstantPolicy, Modify, PathFilter, PathPolicy, Policy, Verdict, WithTools
from callgate.protocols.running import Claim, DistantRunner, Execution, InstantRunner, Runner, RunRequest, Start
from callgate.protocols.stores import BlobStore, CacheStore, HasCachePath, HoldsBlobs, OnDisk

__all__ = [
    "Allow",
    "Ask",
    "BlobStore",
    "CacheStore",
    "Claim",
    "Deny",
    "DistantRunner",
    "Execution",
    "Follower",
    "HasCachePath",
    "HoldsBlobs",
    "InstantPolicy",
    "InstantRunner",
    "Journal",
    "JournalStatus",
    "Kept",
    "Letter",
    "Modify",
    "NamesWriters",
    "OnDisk",
    "PathFilter",
    "PathPolicy",
    "Policy",
    "QueuedJournal",
    "RestartHandler",
    "RunRequest",
    "RunWatcher",
    "Runner",
    "Start",
    "Verdict",
    "WithTools",
    "WriteLog",
]
