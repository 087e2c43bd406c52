"""The limits of a gateway, which its parts share."""

from __future__ import annotations

from callgate._option_checks import Count, Options, Seconds, Whole

__all__ = ["GatewayLimits"]


class GatewayLimits(Options, frozen=True, kw_only=True):
    """The limits of a gateway. Those of a principal are in `Principal`, those of HTTP in the HTTP transport."""

    answer_s: Seconds = 600.0
    """Seconds that a client may take to answer a question of a server, or about an approval."""
    parked_requests: Count = 1_000
    """How many requests of stateless clients may wait for the answers of their clients; those of one principal alone, half as many."""
    task_after_s: Seconds = 10.0
    """Seconds after which a call goes on as a task, if its client knows the tasks extension of MCP."""
    task_ttl_s: Seconds = 3_600.0
    """Seconds for which a task exists. If it still runs then, it is cancelled."""
    tasks: Whole = 1_000
    """How many tasks are kept in memory; 0: the tasks extension is not offered."""
    task_bytes: Count = 67_108_864
    """How large the results of tasks in memory may be together. Older ones are read from the journal."""
