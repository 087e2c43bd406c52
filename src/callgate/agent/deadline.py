"""A run's wall time as a deadline: when it is over, the pass or the calls that run end at once.

Beside the account, which counts and refuses before anything starts: this ends what has started. It waits by the engine's clock and reaches
what runs through the engine's control, as a kill does. Must not decide how the run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callgate._abort_signals import Control
from callgate._clock import Clock
from callgate.agent.account import Account

__all__ = ["in_time"]


@asynccontextmanager
async def in_time(account: Account, clock: Clock, control: Control, conversation: str) -> AsyncIterator[None]:
    """End what runs in the conversation when the account's time is up, for as long as the block lasts."""
    left_s = account.seconds_left
    if left_s is None:
        yield
        return
    timer = asyncio.ensure_future(_end_after(left_s, account, clock, control, conversation))
    try:
        yield
    finally:
        timer.cancel()


async def _end_after(left_s: float, account: Account, clock: Clock, control: Control, conversation: str) -> None:
    while left_s > 0:
        await clock.sleep(left_s)
        left_s = account.seconds_left or 0.0
    control.time_is_up(conversation, account.out_of_time() or "")
