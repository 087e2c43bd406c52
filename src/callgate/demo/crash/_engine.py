"""The engine process that is killed: an agent with the shop's tools. At the given moment, it reports and waits."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from threading import Thread

from msgspec.structs import replace

from callgate.agent import PRESETS, Agent
from callgate.demo._demo_run import DemoRun
from callgate.demo._model import scripted_at
from callgate.demo._processes import Order
from callgate.demo.crash._kill_points import ORDER
from callgate.demo.crash._tools import shop_tools
from callgate.events import Event

__all__ = ["HERE", "work"]

HERE = "here"
_FOR_EVER_S = 600.0
_SETTINGS = replace(PRESETS["agent"], early_start=False)
"""Without early starts, because each run is killed only after its message is complete.

Demonstration 4 shows early starts.
"""


async def work(order: Order) -> None:
    """Start or resume a run."""
    stage = DemoRun(order.demo, None, Path(order.root))

    def reach(place: str, position: int = 0) -> None:
        """If this is the given moment, wait until the events so far are on disk, report, and wait to be killed."""
        if place == order.at:
            on_disk = Thread(target=asyncio.run, args=(engine.journal.durable(position),))
            on_disk.start()
            on_disk.join()
            sys.stdout.write(f"{HERE}\n")
            sys.stdout.flush()
            time.sleep(_FOR_EVER_S)

    def hear(topic: str, item: object) -> None:
        if isinstance(item, Event) and item.run == order.run:
            tool = ORDER[int(item.call.rpartition("/")[2])] if item.call else "-"
            reach(f"{topic} {tool}", item.position)

    engine = stage.engine(shop_tools(stage.ledger, reach))
    engine.bus.subscribe(hear)
    scope = replace(stage.scope(), run=order.run, conversation=order.run)
    model = scripted_at(order.url)
    async with engine, Agent(model, engine, settings=_SETTINGS) as agent:
        if order.goes_on:
            await agent.resume(order.run, extra=scope.extra)
        else:
            await agent.run(f"Sell it. {order.run}", conversation=order.run, scope=scope)
    await model.close()
