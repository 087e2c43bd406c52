"""`python -m callgate.demo ORDER`: the engine of a demonstration in a process of its own, there to be killed. Nobody else starts it."""

from __future__ import annotations

import asyncio
import logging
import sys

import msgspec

from callgate.demo._processes import Order
from callgate.demo.crash._engine import work as work_of_crash
from callgate.demo.repair._engine import work as work_of_repair

_WORK = {"crash": work_of_crash, "repair": work_of_repair}
_INTERRUPTED = 130


def main() -> None:
    logging.getLogger("callgate").addHandler(logging.NullHandler())  # what is worth telling is drawn
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        asyncio.run(_WORK[order.demo](order))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
