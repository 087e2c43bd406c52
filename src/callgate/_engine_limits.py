"""All limits of the engine."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from callgate._option_checks import Count, Options, Pause, Seconds, Whole

__all__ = [
    "ACTIVE_CONVERSATIONS",
    "IDLE_RUN_S",
    "JOURNAL_CHECK_BYTES",
    "JOURNAL_WAIT_S",
    "LEASE_S",
    "LOOK_S",
    "RECORD_S",
    "RULE_COMMAND_CHARS",
    "RULE_IGNORE_FOLDERS",
    "RULE_LIST_ITEMS",
    "RULE_PATH_BYTES",
    "RULE_TEXT_CHARS",
    "RULE_URL_CHARS",
    "SERVER_ANSWER_S",
    "SERVER_CONNECT_S",
    "SERVER_STATEMENT_S",
    "SERVER_STILL_S",
    "Limits",
]

ACTIVE_CONVERSATIONS: Final = 10_000
"""The number of conversations whose activity an engine counts; beyond it, the least recently active one is forgotten."""
LEASE_S: Final = 15.0
"""Seconds after which the lease of a silent engine expires; an engine renews its leases every third of that."""
IDLE_RUN_S: Final = 0.25
"""Seconds without a call after which another engine may take a run that the host named; it may take twice as long."""
JOURNAL_CHECK_BYTES: Final = 67_108_864
JOURNAL_WAIT_S: Final = 30.0
"""Seconds to wait for a journal that another process has locked."""
LOOK_S: Final = 0.25
"""Seconds between two checks of the inbox of a run that an engine holds."""
RECORD_S: Final = 2.0
"""Seconds that the end of a call may wait for the journal after its deadline."""
SERVER_CONNECT_S: Final = 10
"""Seconds that a database server may take to answer a new connection."""
SERVER_STATEMENT_S: Final = 30
"""Seconds that one statement may take on a database server, including waits for locks."""
SERVER_ANSWER_S: Final = 40
"""Seconds that a database server may be silent; longer than a statement may take."""
SERVER_STILL_S: Final = 10
"""Seconds for which an engine that was suspended during a commit blocks all others."""
RULE_PATH_BYTES: Final = 4_096
"""The longest path in bytes for which rules compute facts. A longer path is denied; no file system accepts one."""
RULE_COMMAND_CHARS: Final = 131_072
"""The largest size in bytes of all words of a command; it is the longest single word that Linux accepts."""
RULE_URL_CHARS: Final = 8_192
RULE_IGNORE_FOLDERS: Final = 64
"""The maximum depth of a path for which ignore files are read."""
RULE_TEXT_CHARS: Final = 1_048_576
"""The largest size in bytes of an argument's text, or of all texts of a list, that a rule may examine."""
RULE_LIST_ITEMS: Final = 10_000


class Limits(Options, frozen=True, kw_only=True):
    """The limits of one engine. Sizes are in bytes of UTF-8, times in seconds."""

    arguments_bytes: Count = 1_048_576
    arguments_depth: Count = 64
    arguments_keys: Count = 20_000
    repair_bytes: Whole = 16_384
    """Malformed JSON above this size is refused, never repaired."""
    call_id_chars: Count = 256
    calls_per_message: Count = 10_000
    """Calls of one assistant message; those above it are refused."""
    result_inline_bytes: Whole = 1_048_576
    """A result up to this size is stored in the journal itself, a larger one in the blob store."""
    result_bytes: Count = 67_108_864
    """A result above this size is refused."""
    content_bytes: Annotated[int, Meta(ge=512)] = 16_384
    """The part of one result that the model is shown; the rest is in the blob store."""
    media_bytes: Whole = 5_242_880
    """The images, audio and files of one result that the model is shown; those above are in the blob store."""
    error_bytes: Annotated[int, Meta(ge=1_024)] = 4_096
    policy_rounds: Count = 3
    """How many times one call may be modified and judged again."""
    policy_timeout_s: Seconds = 30.0
    """Seconds for one policy to judge one call; then the call is denied."""
    hook_timeout_s: Seconds = 5.0
    parallel_calls: Count = 1_000
    """Calls that run at the same time in one engine."""
    parallel_threads: Count = 128
    waiting_threads: Count = 4_096
    """Threads that may wait for calls that their tools made, in addition to `parallel_threads`; above, thread tools are refused."""
    abandoned_threads: Count = 64
    """Threads that may be lost to tools that never return, before thread tools are refused."""
    grace_s: Pause = 0.3
    """Seconds between asking a tool to stop and ending it."""
    dangerous_per_tick: Whole | None = None
    """How many `dangerous` calls may start in one tick; None for no limit."""
    soft_warn_iteration: Whole | None = 20
    """The iteration from which tools are told to show how to kill the turn, and an agent gives one notice; None for never."""
    remembered_calls: Whole = 10_000
    """Finished calls per engine whose results are kept in memory for identical later calls."""
    approval_s: Seconds = 86_400.0
    """Seconds until a question to a human expires."""
    human_answer_s: Seconds = 600.0
    """Seconds that all questions of one running call to a human may take, such as those of an MCP server. They do not count as its time."""
