"""The floor: nothing but the job. Parse the arguments, await the function, keep the result.

Also what is called, the same for us and for every peer: an async no-op with three typed arguments, given as JSON text. Imports nothing
but the standard library, so that a peer's process holds only the peer.
"""

from __future__ import annotations

import asyncio
import json

__all__ = ["TEXT", "Results", "floor_call", "floor_gather", "floor_serial", "no_op", "wait_10_ms"]

TEXT = '{"city": "Hamburg", "days": 3, "metric": true}'
Results = list[object]


async def no_op(city: str, days: int, metric: bool) -> str:
    """Look up nothing."""
    return "sunny"


async def wait_10_ms(city: str, days: int, metric: bool) -> str:
    """Wait as a request would."""
    await asyncio.sleep(0.01)
    return "sunny"


async def floor_call(text: str, results: Results) -> None:
    results.append(await no_op(**json.loads(text)))


async def floor_serial(count: int) -> Results:
    """`count` calls, one after another."""
    results: Results = []
    for _ in range(count):
        await floor_call(TEXT, results)
    return results


async def floor_gather(count: int) -> Results:
    """`count` calls at once."""
    results: Results = []
    await asyncio.gather(*(floor_call(TEXT, results) for _ in range(count)))
    return results
