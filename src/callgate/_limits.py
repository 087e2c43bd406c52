"""Every bound of the engine in one place."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["LEASE_S", "LOOK_S", "Limits"]

LEASE_S: Final = 15.0
"""How long an engine that shows no sign of life keeps its runs; it shows one every third of that."""
LOOK_S: Final = 0.25
"""How often an engine that holds a run looks whether another process wants something of it."""


class Limits(Struct, frozen=True, kw_only=True):
    """How much of everything one engine takes. All sizes in bytes of UTF-8, all times in seconds."""

    arguments_bytes: int = 1_048_576
    arguments_depth: int = 64
    arguments_keys: int = 20_000
    repair_bytes: int = 16_384
    """Malformed JSON above this size is refused, never repaired."""
    call_id_chars: int = 256
    result_inline_bytes: int = 1_048_576
    """A result up to this size is stored in the record itself; above, by reference to the blob store."""
    result_bytes: int = 67_108_864
    """A result above this size is refused."""
    content_bytes: int = 16_384
    """What the model sees of one result; the rest is in the blob store."""
    error_bytes: int = 4_096
    policy_rounds: int = 3
    """How often one call may be modified and judged again."""
    policy_timeout_s: float = 30.0
    """How long one policy may take to judge one call; after that the call is denied."""
    hook_timeout_s: float = 5.0
    parallel_calls: int = 1_000
    """Calls that run at once in one engine."""
    parallel_threads: int = 128
    abandoned_threads: int = 64
    """Threads that may be lost to tools that never return, before thread tools are refused."""
    grace_s: float = 0.3
    """What a tool gets between being told to stop and being ended."""
    dangerous_per_tick: int | None = None
    """How many `dangerous` calls may start in one tick; None for no limit."""
    soft_warn_iteration: int = 20
    """From this iteration on, tools are told to show their user how to kill the turn."""
    remembered_calls: int = 10_000
    """Finished calls per engine whose results are kept for a caller that hands the same call in again."""
    approval_s: float = 86_400.0
    """How long a question to a human stays open."""
