"""What the agent loop costs: one more iteration, a long history, a turn that streams, the first run of a process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from statistics import median

import callgate
from bench.floor import Stamps, answers_of, floor_loop, no_op, nth_text
from bench.measure import Counts, Row, cpu
from callgate import Agent, Rules, tool
from callgate.agent import Budget, Settings
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.testing import Call, Pause, ScriptedModel

__all__ = ["FirstRun", "Iterations", "StreamedTurns"]

RULES = """
[[rule]]
id = "not-too-far"
verdict = "deny"
tool = "*"
when = { "arguments.days" = { above = 100000 } }
reason = "No forecast reaches that far."
"""


def scripted(iterations: int) -> ScriptedModel:
    """A model that asks for one call after the other, each with other arguments, and then answers."""
    return ScriptedModel(_turns(iterations))


def _turns(iterations: int) -> list[Sequence[Call | str]]:
    return [*([Call("no_op", nth_text(day), id=f"call_{day}")] for day in range(iterations)), ["done"]]


def agent_of(model: ScriptedModel) -> Agent:
    """An agent as a user would make it; only the number of its iterations has no bound."""
    made = tool(effect="none")(no_op)
    return Agent(model, tools=[made], policies=[Rules.parse(RULES)], settings=Settings(budget=Budget(iterations=None)))


async def run(iterations: int, model: ScriptedModel | None = None) -> None:
    async with agent_of(model or scripted(iterations)) as agent:
        result = await agent.run("Go.")
    if not result.completed or result.spent.iterations != iterations:
        raise RuntimeError(f"the run that is measured does not work: {result.turn_status} {result.reason}")


class Stamped(ScriptedModel):
    """The same model; notes the time at each pass.

    Args:
        clock: Says the time, in seconds.
    """

    def __init__(self, iterations: int, clock: Callable[[], float]) -> None:
        super().__init__(_turns(iterations))
        self.stamps: Stamps = []
        self._now = clock

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        self.stamps.append(self._now())
        async for event in super().stream(request, context):
            yield event


class Iterations:
    """One more round of the loop, and whether it stays what it is."""

    def __init__(self) -> None:
        note = "validation, a rule, deadline, record; an iteration of the floor is one model answer, json.loads, await, append"
        self.one = Row("one more iteration of the agent loop / bare loop", most=12.0, note=note)
        self.growth = Row("iteration 1,000 / iteration 10: CPU", most=1.15, note="medians of 100 iterations at either end")
        self.rows = (self.one, self.growth)

    async def open(self, counts: Counts) -> None:
        await run(5)

    async def round(self, counts: Counts) -> None:
        iterations = counts.tasks
        answers = answers_of(iterations)
        floor = await cpu(lambda: floor_loop(answers), iterations)
        models = scripted(1), scripted(iterations + 1)
        short = await cpu(lambda: run(1, models[0]))
        long = await cpu(lambda: run(iterations + 1, models[1]))
        self.one.ratio((long - short) / iterations, floor)
        self.growth.samples.append(await _growth(counts.calls // 2 or 1))

    async def close(self) -> None: ...


async def _growth(iterations: int) -> float:
    """What the last iterations take, over what the first ones take."""
    model = Stamped(iterations, time.process_time)
    await run(iterations, model)
    steps = [after - before for before, after in zip(model.stamps, model.stamps[1:], strict=False)]
    few = max(1, min(100, len(steps) // 3))
    return median(steps[-few:]) / median(steps[few // 10 : few // 10 + few])


class StreamedTurns:
    """Turns of four calls whose arguments are complete one after the other while the message streams for two seconds."""

    def __init__(self) -> None:
        self.short = Row("a streamed turn, short calls before a long one: wall / ideal", most=1.02, note="scenario B; ideal 2.05 s")
        self.late = Row("a streamed turn, long calls: wall / ideal", most=1.02, note="scenario C; ideal 2.50 s")
        self.rows = (self.short, self.late)
        self.scale = 1.0
        self.left = 3

    async def open(self, counts: Counts) -> None:
        self.scale = 1.0 if counts.rounds > 1 else 0.02

    async def round(self, counts: Counts) -> None:
        if self.left == 0:
            return  # each takes two seconds of waiting
        self.left -= 1
        short = self._turn((0.2, 0.4, 0.6, 2.0), (1.0, 1.0, 1.0, 0.05))
        late = self._turn((0.5, 1.0, 1.5, 2.0), (2.0, 1.0, 1.0, 0.2))
        took = await asyncio.gather(short, late)
        self.short.samples.append(took[0] / (2.05 * self.scale))
        self.late.samples.append(took[1] / (2.5 * self.scale))

    async def _turn(self, complete_at: tuple[float, ...], takes: tuple[float, ...]) -> float:
        """Seconds from the first byte to the last result."""
        ended: list[float] = []

        @tool(effect="none")
        async def work(index: int, seconds: float) -> str:
            """Wait as a request would."""
            await asyncio.sleep(seconds)
            ended.append(time.perf_counter())
            return "done"

        items: list[Call | Pause] = []
        before = 0.0
        for index, (at, seconds) in enumerate(zip(complete_at, takes, strict=True)):
            items.append(Pause((at - before) * self.scale))
            items.append(Call("work", json.dumps({"index": index, "seconds": seconds * self.scale}), id=f"call_{index}"))
            before = at
        async with Agent(ScriptedModel([items, ["done"]]), tools=[work], policies=[Rules.parse(RULES.replace("days", "index"))]) as agent:
            began = time.perf_counter()
            result = await agent.run("Go.")
            if not result.completed or len(result.results) != len(takes):
                raise RuntimeError(f"the turn that is measured does not work: {result.turn_status} {result.reason}")
        return max(ended) - began

    async def close(self) -> None: ...


class FirstRun:
    """Import, build and one run with one call, in a process of its own, beside a peer's.

    Args:
        peers: The interpreter that has the peer.
    """

    def __init__(self, peers: str = sys.executable) -> None:
        self._peers = peers
        self.first = Row("import, build and first run: CPU / agent-framework", most=0.6)
        self.rows = (self.first,)

    async def open(self, counts: Counts) -> None:
        for interpreter, name in ((sys.executable, "callgate"), (self._peers, "agent-framework")):
            try:
                _first_run(interpreter, name)  # writes the byte code
            except subprocess.CalledProcessError as error:
                self.first.skipped = f"{name} does not run here: {error.stderr.strip().splitlines()[-1]}"

    async def round(self, counts: Counts) -> None:
        if not self.first.skipped:
            self.first.ratio(_first_run(sys.executable, "callgate"), _first_run(self._peers, "agent-framework"))

    async def close(self) -> None: ...


def _first_run(interpreter: str, name: str) -> float:
    root = Path(__file__).resolve().parent.parent
    paths = [str(root), str(Path(callgate.__file__).parent.parent)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        [interpreter, "-m", "bench.first_run", name],
        env=environment | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(ran.stdout)
