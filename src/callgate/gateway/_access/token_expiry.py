"""End what outlives a request's token. A running call is not ended: it was allowed when it began."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from callgate.gateway.principals import Principal

__all__ = ["end_at_expiry"]


@contextmanager
def end_at_expiry(principal: Principal, end: Callable[[], None]) -> Iterator[None]:
    """Call `end` when the principal's token expires, unless the block has ended before."""
    if principal.expires_at is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(max(0.0, principal.expires_at - time.time()), end)
    try:
        yield
    finally:
        timer.cancel()
