"""An engine in a process that a test kills: it runs one hanging tool and reports when that tool has begun."""

from __future__ import annotations

import asyncio
import sys

from callgate import Limits
from callgate._clock import SystemClock
from callgate._runners.process import ProcessRunner
from tests.runners import hostile_tools
from tests.runners.runner_requests import Made
from tests.waiting import HANGS_S, soon


async def main() -> None:
    runner = ProcessRunner(Limits(), SystemClock())
    made = Made(hostile_tools.double_fork, timeout_s=HANGS_S)
    running = asyncio.ensure_future(runner.run(made.request))
    assert await soon(lambda: made.progress)
    sys.stdout.write(f"{made.uid}\n")
    sys.stdout.flush()
    await running


if __name__ == "__main__":
    asyncio.run(main())
