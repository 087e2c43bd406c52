"""`python -m callgate.demo ORDER`: run a demonstration's engine in its own process, which the demonstration kills. For internal use."""

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
    logging.getLogger("callgate").addHandler(logging.NullHandler())  # the screen shows what matters
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        asyncio.run(_WORK[order.demo](order))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
