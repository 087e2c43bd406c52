"""How many connections the operating system lets this process have. Many systems allow 1,024 open files unless a program asks for more."""

from __future__ import annotations

import contextlib
import logging

__all__ = ["possible_connections"]

_LOG = logging.getLogger("callgate.gateway")
_OTHERS = 500
"""Files for everything else: the journal, and the pipes and connections of servers."""


def possible_connections(wanted: int) -> int:
    """Raise this process's limit of open files as far as it is allowed and needed; return how many of the connections it can have."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + _OTHERS if hard == resource.RLIM_INFINITY else min(wanted + _OTHERS, hard)
    if needed > soft:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    possible = min(wanted, max(soft - _OTHERS, soft // 2))
    if possible < wanted:
        _LOG.warning("There can be %s connections instead of %s: the limit of open files is %s. Raise it.", possible, wanted, soft)
    return possible
