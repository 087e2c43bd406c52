"""The protocols that adapters implement, and their values.

A policy decides on calls, a runner runs tools, a journal stores events, a blob store stores bytes, a cache store stores results. All
implementations of these pass the same contract suite. A redactor removes secrets. Knows no implementation.
"""

from __future__ import annotations

from callgate._secret_redaction import Redactor
from callgate.protocols.blob_and_cache_stores import BlobStore, CacheStore, HasCachePath, HoldsBlobs, OnDisk
from callgate.protocols.inbox import Inbox, InboxMessage
from callgate.protocols.journals import Journal, JournalStatus, NamesWriters, OffersLeases, QueuedJournal, RunWatcher
from callgate.protocols.judges import CallJudge, JudgeContext, Judgment
from callgate.protocols.leases import Lease, LeaseStore
from callgate.protocols.observers import CapturedChange, Follower, RestartHandler, WriteLog
from callgate.protocols.policies import (
    Allow,
    Ask,
    Deny,
    InstantPolicy,
    JudgmentRequired,
    Modify,
    PathFilter,
    PathPolicy,
    Policy,
    RequiresJudge,
    Verdict,
    WithServers,
    WithTools,
)
from callgate.protocols.runners import Claim, DistantRunner, Execution, InstantRunner, Runner, RunRequest, Start
from callgate.protocols.tool_servers import ReportsStatus, RetriesStart, ServerState, ServerStatus, ToolCatalogue, ToolServer

__all__ = [
    "Allow",
    "Ask",
    "BlobStore",
    "CacheStore",
    "CallJudge",
    "CapturedChange",
    "Claim",
    "Deny",
    "DistantRunner",
    "Execution",
    "Follower",
    "HasCachePath",
    "HoldsBlobs",
    "Inbox",
    "InboxMessage",
    "InstantPolicy",
    "InstantRunner",
    "Journal",
    "JournalStatus",
    "JudgeContext",
    "Judgment",
    "JudgmentRequired",
    "Lease",
    "LeaseStore",
    "Modify",
    "NamesWriters",
    "OffersLeases",
    "OnDisk",
    "PathFilter",
    "PathPolicy",
    "Policy",
    "QueuedJournal",
    "Redactor",
    "ReportsStatus",
    "RequiresJudge",
    "RestartHandler",
    "RetriesStart",
    "RunRequest",
    "RunWatcher",
    "Runner",
    "ServerState",
    "ServerStatus",
    "Start",
    "ToolCatalogue",
    "ToolServer",
    "Verdict",
    "WithServers",
    "WithTools",
    "WriteLog",
]
