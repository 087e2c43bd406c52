"""`python -m callgate.demo ORDER`: run a demonstration's engine in its own process, which the demonstration kills. For internal use."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module

import msgspec

from callgate.demo._processes import Order

_INTERRUPTED = 130


def main() -> None:
    logging.getLogger("callgate").addHandler(logging.NullHandler())  # the screen shows what matters
    order = msgspec.json.decode(sys.argv[1], type=Order)
    try:
        asyncio.run(import_module(f"callgate.demo.{order.demo}._engine").work(order))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
