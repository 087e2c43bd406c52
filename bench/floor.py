"""The floor: nothing but the job. Parse the arguments, await the function, keep the result; and ask a model before each, for a loop.

Also what is called, the same for us and for every peer: an async no-op with three typed arguments, given as JSON text. Imports nothing
but the standard library, so that a peer's process holds only the peer.
"""

from __future__ import annotations

import asyncio
import json

__all__ = [
    "TEXT",
    "Answers",
    "Results",
    "Stamps",
    "answers_of",
    "floor_call",
    "floor_gather",
    "floor_loop",
    "floor_serial",
    "no_op",
    "nth_text",
    "wait_10_ms",
]

TEXT = '{"city": "Hamburg", "days": 3, "metric": true}'
Results = list[object]
Answers = list[tuple[str, str] | str]
"""What a model says, pass by pass: a call, as name and arguments, or the last text."""
Stamps = list[float]
"""The CPU time at each pass of a model, in seconds."""


def nth_text(day: int) -> str:
    """The arguments of one call, which no other call of the run has."""
    return f'{{"city": "Hamburg", "days": {day}, "metric": true}}'


def answers_of(iterations: int) -> Answers:
    return [*(("no_op", nth_text(day)) for day in range(iterations)), "done"]


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


async def floor_loop(answers: Answers) -> Results:
    """The agent loop and nothing but: ask the model, parse, call, keep."""

    async def model(messages: Results) -> tuple[str, str] | str:
        return answers[len(messages) // 2]

    messages: Results = []
    while isinstance(answer := await model(messages), tuple):
        messages.append(answer)
        messages.append(await no_op(**json.loads(answer[1])))
    return messages
