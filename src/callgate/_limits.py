"""Every bound of the engine in one place."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from callgate._options import Count, Options, Pause, Seconds, Whole

__all__ = [
    "ACTIVE_CONVERSATIONS",
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
"""Of how many conversations an engine counts the activity; of one more, the one that was active longest ago is forgotten."""
LEASE_S: Final = 15.0
"""How long an engine that shows no sign of life keeps its runs; it shows one every third of that."""
JOURNAL_CHECK_BYTES: Final = 67_108_864
JOURNAL_WAIT_S: Final = 30.0
"""How long opening, reading or writing a journal waits for other processes that have it locked."""
LOOK_S: Final = 0.25
"""How often an engine that holds a run looks whether another process wants something of it."""
RECORD_S: Final = 2.0
"""How long the end of a call whose time is over may still wait for the record."""
SERVER_CONNECT_S: Final = 10
"""How long a database server may take to answer a new connection."""
SERVER_STATEMENT_S: Final = 30
"""How long a database server lets one statement take, waits for locks included."""
SERVER_ANSWER_S: Final = 40
"""How long a database server may say nothing: longer than it lets a statement take."""
SERVER_STILL_S: Final = 10
"""How long an engine that was stopped in the middle of a commit holds up all others."""
RULE_PATH_BYTES: Final = 4_096
"""A longer path is denied where a rule asks for a fact about it; no file system takes one."""
RULE_COMMAND_CHARS: Final = 131_072
"""All words of a command together; the longest word that Linux takes."""
RULE_URL_CHARS: Final = 8_192
RULE_IGNORE_FOLDERS: Final = 64
"""Of a path in more folders, one in another, nobody looks whether the project ignores it."""
RULE_TEXT_CHARS: Final = 1_048_576
"""The text of an argument that a rule asks for, or all texts of a list."""
RULE_LIST_ITEMS: Final = 10_000


class Limits(Options, frozen=True, kw_only=True):
    """How much of everything one engine takes. All sizes in bytes of UTF-8, all times in seconds."""

    arguments_bytes: Count = 1_048_576
    arguments_depth: Count = 64
    arguments_keys: Count = 20_000
    repair_bytes: Whole = 16_384
    """Malformed JSON above this size is refused, never repaired."""
    call_id_chars: Count = 256
    calls_per_message: Count = 10_000
    """Calls of one assistant message; those above it are refused."""
    result_inline_bytes: Whole = 1_048_576
    """A result up to this size is stored in the record itself; above, by reference to the blob store."""
    result_bytes: Count = 67_108_864
    """A result above this size is refused."""
    content_bytes: Annotated[int, Meta(ge=512)] = 16_384
    """What the model sees of one result; the rest is in the blob store."""
    error_bytes: Annotated[int, Meta(ge=1_024)] = 4_096
    policy_rounds: Count = 3
    """How often one call may be modified and judged again."""
    policy_timeout_s: Seconds = 30.0
    """How long one policy may take to judge one call; after that the call is denied."""
    hook_timeout_s: Seconds = 5.0
    parallel_calls: Count = 1_000
    """Calls that run at once in one engine."""
    parallel_threads: Count = 128
    waiting_threads: Count = 4_096
    """Threads that may wait for calls that their tools made, which `parallel_threads` does not count; above, thread tools are refused."""
    abandoned_threads: Count = 64
    """Threads that may be lost to tools that never return, before thread tools are refused."""
    grace_s: Pause = 0.3
    """What a tool gets between being told to stop and being ended."""
    dangerous_per_tick: Whole | None = None
    """How many `dangerous` calls may start in one tick; None for no limit."""
    soft_warn_iteration: Whole | None = 20
    """From this iteration on, tools are told to show their user how to kill the turn, and an agent gives one notice; None: never."""
    remembered_calls: Whole = 10_000
    """Finished calls per engine whose results are kept for a caller that hands the same call in again."""
    approval_s: Seconds = 86_400.0
    """How long a question to a human stays open."""
