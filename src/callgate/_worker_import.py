"""Track whether this process is a worker that is importing a tool's module, and refuse to run calls meanwhile.

A worker imports the module of its tool, and with it everything at the module's top level. An engine there would run the program's calls a
second time. Knows nothing of workers and engines: the worker marks the import, the engine asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from callgate.errors import UsageError

__all__ = ["importing", "refuse_while_importing"]

_module: list[str] = []
"""The module that is being imported; a list, because threads that the import starts must see it, too."""


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Mark that a worker imports `module`."""
    _module.append(module)
    try:
        yield
    finally:
        _module.pop()


def refuse_while_importing() -> None:
    """Raise `UsageError` if a worker is importing a tool's module."""
    if _module:
        raise UsageError(
            f"a worker process is importing {_module[-1]} for a tool with runner='process', and the module's top level uses an engine."
            " Nothing was run there, because the program itself does it. Protect the script's top level with if __name__ == '__main__':,"
            " or move the tool to a module of its own."
        )
